#include <tandem/cuda/native_stream.hpp>

#include "base/try.hpp"
#include "device/cuda/cuda_stream.hpp"

namespace tandem::cuda {

Result<CUstream_st*> native_stream(Stream& stream) {
  TANDEM_ASSIGN(const CudaStream* own, cuda_stream(stream, "native_stream"));
  return own->native();
}

Result<std::unique_ptr<Stream>> adopt_stream(Device& device, CUstream_st* native) {
  return CudaStream::adopt(device, native);
}

}  // namespace tandem::cuda
