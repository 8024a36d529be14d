#include "symm/cuda/control_view.hpp"

#include <cuda_runtime_api.h>

#include <span>
#include <utility>

#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"

namespace tandem::symm::cuda {
namespace {

using bootstrap::ControlMemory;
using tandem::cuda::check_cuda;
using tandem::cuda::CurrentDevice;

/// Host memory that every GPU of this process can address.
///
/// The end of a registration may wait for the work of the GPU. By then no kernel uses this memory (its group
/// is gone, and what was queued has kept it until now), but kernels of another group may be waiting for this
/// very thread; if so they wait until their deadline. So end a group while no other op of the rank is
/// waiting.
class Registration {
 public:
  [[nodiscard]] static Result<std::shared_ptr<void>> make(std::span<std::byte> bytes, int device) {
    TANDEM_TRY(check_cuda(
        "cudaHostRegister of the control memory",
        cudaHostRegister(bytes.data(), bytes.size(), cudaHostRegisterPortable | cudaHostRegisterMapped)));
    return std::make_shared<Registration>(bytes, device);
  }
  Registration(std::span<std::byte> bytes, int device) : bytes_(bytes), device_(device) {}
  ~Registration() {
    const CurrentDevice current(device_);
    static_cast<void>(cudaHostUnregister(bytes_.data()));
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

 private:
  std::span<std::byte> bytes_;
  int device_;
};

}  // namespace

Result<void> view_control(ControlMemory& memory, int rank, int device, KernelControl& control) {
  const CurrentDevice current(device);
  const std::span<std::byte> bytes = memory.bytes();
  TANDEM_TRY(memory.attachment([&] { return Registration::make(bytes, device); }));
  void* base = nullptr;
  TANDEM_TRY(check_cuda("cudaHostGetDevicePointer of the control memory",
                        cudaHostGetDevicePointer(&base, bytes.data(), 0)));
  const auto on_device = [&](const auto& place) {
    const std::ptrdiff_t offset = reinterpret_cast<const std::byte*>(&place) - bytes.data();
    return reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(base) + offset);
  };
  control.group_error = on_device(memory.header().error.state);
  control.left = on_device(memory.rank(0).left);
  control.left_stride_bytes = sizeof(bootstrap::RankArea);
  control.waits_for = on_device(memory.rank(rank).device_waits_for);
  control.fault = reinterpret_cast<KernelFault*>(on_device(memory.rank(rank).device_record));
  control.nan_report = reinterpret_cast<NanReport*>(on_device(memory.rank(rank).nan_report));
  return {};
}

}  // namespace tandem::symm::cuda
