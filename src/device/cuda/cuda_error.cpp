#include "device/cuda/cuda_error.hpp"

#include "base/format.hpp"
#include "device/cuda/driver_api.hpp"

namespace tandem::cuda {
namespace {

/// Whether this thread has chosen a device. One that has not is said to be on device 0, but the driver's own
/// functions refuse to work there; and to choose device 0 for it would start that GPU for nothing.
bool has_context() {
  static const auto driver = DriverApi::load();
  CUcontext context = nullptr;
  return driver && (*driver)->ctx_get_current(&context) == CUDA_SUCCESS && context != nullptr;
}

}  // namespace

Error cuda_error(std::string_view what, cudaError_t code) {
  static_cast<void>(cudaGetLastError());
  const ErrorCode kind = code == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kDriver;
  return Error(kind, fmt::format("{}: {}: {}", what, cudaGetErrorName(code), cudaGetErrorString(code)), code);
}

Result<void> check_cuda(std::string_view what, cudaError_t code) {
  if (code == cudaSuccess) return {};
  return tl::unexpected(cuda_error(what, code));
}

CurrentDevice::CurrentDevice(int device) {
  int now = -1;
  if (cudaGetDevice(&now) != cudaSuccess) now = -1;
  const bool chosen = has_context();
  if (chosen && now == device) return;
  if (chosen) before_ = now;
  static_cast<void>(cudaSetDevice(device));
}

CurrentDevice::~CurrentDevice() {
  if (before_ >= 0) static_cast<void>(cudaSetDevice(before_));
}

}  // namespace tandem::cuda
