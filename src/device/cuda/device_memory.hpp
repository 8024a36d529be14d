#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <tandem/base/error.hpp>

#include "device/cuda/internal_stream.hpp"

namespace tandem::cuda {

/// Memory of one Device object: a pool of its own, and the internal stream on which memory is had, given back
/// and filled by the host. Nothing here waits for any other stream: kernels of other ranks on this GPU may be
/// waiting for a signal that the calling thread has yet to send. Shared by the device and all its buffers, so
/// that they may go in any order.
class DeviceMemory {
 public:
  [[nodiscard]] static Result<std::shared_ptr<DeviceMemory>> create(int device);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// Usable on any stream at once. Errors: kOutOfMemory with the bytes asked for.
  [[nodiscard]] Result<void*> allocate(std::int64_t num_bytes);
  /// Work that uses it must be done. Returns at once.
  void free(void* data);

  [[nodiscard]] const std::shared_ptr<InternalStream>& internal_stream() const { return stream_; }

  // Return when it is done.
  [[nodiscard]] Result<void> zero(void* data, std::int64_t num_bytes);
  [[nodiscard]] Result<void> copy_from_host(const void* from, void* to, std::int64_t num_bytes) {
    return copy("copy_from_host", from, to, num_bytes);
  }
  [[nodiscard]] Result<void> copy_to_host(const void* from, void* to, std::int64_t num_bytes) {
    return copy("copy_to_host", from, to, num_bytes);
  }

 private:
  explicit DeviceMemory(int device) : device_(device) {}
  [[nodiscard]] Result<void> copy(const char* what, const void* from, void* to, std::int64_t num_bytes);

  const int device_;
  std::int64_t total_bytes_ = 0;
  cudaMemPool_t pool_ = nullptr;
  std::shared_ptr<InternalStream> stream_;
};

}  // namespace tandem::cuda
