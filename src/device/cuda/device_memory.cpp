#include "device/cuda/device_memory.hpp"

#include <algorithm>
#include <limits>
#include <tandem/base/tensor.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"

namespace tandem::cuda {

Result<std::shared_ptr<DeviceMemory>> DeviceMemory::create(int device) {
  const CurrentDevice current(device);
  std::shared_ptr<DeviceMemory> memory(new DeviceMemory(device));
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  TANDEM_TRY(check_cuda("open device", cudaMemGetInfo(&free_bytes, &total_bytes)));
  memory->total_bytes_ = static_cast<std::int64_t>(total_bytes);

  TANDEM_ASSIGN(memory->stream_, InternalStream::of(device));
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, device};
  TANDEM_TRY(check_cuda("open device", cudaMemPoolCreate(&memory->pool_, &properties)));
  // Memory stays in the pool: giving it back to the system can wait for the whole device.
  std::uint64_t threshold = std::numeric_limits<std::uint64_t>::max();
  TANDEM_TRY(check_cuda("open device",
                        cudaMemPoolSetAttribute(memory->pool_, cudaMemPoolAttrReleaseThreshold, &threshold)));
  return memory;
}

DeviceMemory::~DeviceMemory() {
  const CurrentDevice current(device_);
  if (pool_ == nullptr) return;
  // In turn, and behind what was freed: cuStreamSynchronize() of another thread, which looks at what this
  // stream has freed, has been seen to crash in the driver.
  static_cast<void>(stream_->start([&](cudaStream_t stream) {
    static_cast<void>(cudaStreamSynchronize(stream));
    return cudaMemPoolDestroy(pool_);
  }));
}

Result<void*> DeviceMemory::allocate(std::int64_t num_bytes) {
  const CurrentDevice current(device_);
  void* data = nullptr;
  const auto size =
      static_cast<std::size_t>(std::max<std::int64_t>(num_bytes, 1));  // none has an address too
  // Beyond all memory the pool's own arithmetic is not to be trusted.
  const cudaError_t code =
      num_bytes > total_bytes_ ? cudaErrorMemoryAllocation : stream_->run([&](cudaStream_t stream) {
        return cudaMallocFromPoolAsync(&data, size, pool_, stream);
      });
  if (code == cudaSuccess) return data;
  return tl::unexpected(cuda_error(fmt::format("allocate: {} bytes asked for on {}", num_bytes,
                                               to_string(DeviceId{DeviceKind::kCuda, device_})),
                                   code));
}

void DeviceMemory::free(void* data) {
  const CurrentDevice current(device_);
  static_cast<void>(stream_->start([&](cudaStream_t stream) { return cudaFreeAsync(data, stream); }));
}

Result<void> DeviceMemory::zero(void* data, std::int64_t num_bytes) {
  const CurrentDevice current(device_);
  return check_cuda("zero", stream_->run([&](cudaStream_t stream) {
    return cudaMemsetAsync(data, 0, static_cast<std::size_t>(num_bytes), stream);
  }));
}

Result<void> DeviceMemory::copy(const char* what, const void* from, void* to, std::int64_t num_bytes) {
  const CurrentDevice current(device_);
  return check_cuda(what, stream_->run([&](cudaStream_t stream) {
    return cudaMemcpyAsync(to, from, static_cast<std::size_t>(num_bytes), cudaMemcpyDefault, stream);
  }));
}

}  // namespace tandem::cuda
