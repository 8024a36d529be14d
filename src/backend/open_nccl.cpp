#include <tandem/transport/nccl.hpp>

#include "base/format.hpp"
#ifdef TANDEM_HAS_CUDA
#include "transport/cuda/nccl.hpp"
#endif

namespace tandem {

Result<std::shared_ptr<Transport>> open_nccl(int rank, int size, Store& store, Device& device) {
  if (rank < 0 || rank >= size)
    return failf(ErrorCode::kInvalidArgument, "NCCL: rank {} of {}, need 0 <= rank < size", rank, size);
  if (device.id().kind != DeviceKind::kCuda) {
    return failf(ErrorCode::kUnsupported, "NCCL: {} is no GPU; ranks on CPUs cross hosts by MPI (open_mpi)",
                 to_string(device.id()));
  }
#ifdef TANDEM_HAS_CUDA
  return transport::cuda::open_nccl(rank, size, store, device);
#else
  static_cast<void>(store);
  return fail(ErrorCode::kUnsupported, "NCCL: this build has CPU devices only");
#endif
}

}  // namespace tandem
