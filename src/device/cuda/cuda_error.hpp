#pragma once

#include <cuda_runtime_api.h>

#include <string_view>
#include <tandem/base/error.hpp>

namespace tandem::cuda {

/// The runtime's refusal as an Error: kOutOfMemory where it says so, else kDriver, with the driver's name
/// and text of the code: "create_stream: cudaErrorInvalidValue: invalid argument". Clears the thread's last
/// error.
[[nodiscard]] Error cuda_error(std::string_view what, cudaError_t code);

/// Ok, or the above.
[[nodiscard]] Result<void> check_cuda(std::string_view what, cudaError_t code);

/// Makes `device` the calling thread's current one until the end of the scope, or for good in a thread that
/// had none. Every entry of the leaves that calls the runtime begins with it: host threads come and go, and
/// each has a current device of its own.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = -1;  ///< -1: nothing to go back to
};

}  // namespace tandem::cuda
