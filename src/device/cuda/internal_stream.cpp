#include "device/cuda/internal_stream.hpp"

#include <map>
#include <mutex>

#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"

namespace tandem::cuda {

Result<std::shared_ptr<InternalStream>> InternalStream::of(int gpu) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<InternalStream>> streams;
  const std::lock_guard lock(mutex);
  if (auto found = streams[gpu].lock()) return found;
  const CurrentDevice current(gpu);
  std::shared_ptr<InternalStream> made(new InternalStream(gpu));
  // Most urgent: the host waits for all that is done here.
  int least_urgent = 0;
  int most_urgent = 0;
  TANDEM_TRY(check_cuda("open device", cudaDeviceGetStreamPriorityRange(&least_urgent, &most_urgent)));
  TANDEM_TRY(check_cuda("open device",
                        cudaStreamCreateWithPriority(&made->native_, cudaStreamNonBlocking, most_urgent)));
  streams[gpu] = made;
  return made;
}

InternalStream::~InternalStream() {
  const CurrentDevice current(gpu_);
  if (native_ != nullptr) static_cast<void>(cudaStreamDestroy(native_));
}

}  // namespace tandem::cuda
