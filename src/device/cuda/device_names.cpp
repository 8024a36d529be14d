#include "device/cuda/device_names.hpp"

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"

namespace tandem::cuda {

Result<std::vector<std::string>> device_names() {
  int count = 0;
  if (const cudaError_t code = cudaGetDeviceCount(&count); code != cudaSuccess || count == 0) {
    static_cast<void>(cudaGetLastError());
    return failf(ErrorCode::kUnsupported, "no usable GPU: {}",
                 code == cudaSuccess ? "the driver lists none" : cudaGetErrorString(code));
  }
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    TANDEM_TRY(check_cuda("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, i)));
    names.emplace_back(properties.name);
  }
  return names;
}

}  // namespace tandem::cuda
