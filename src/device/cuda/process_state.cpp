// What this leaf has once a process, and not once a Device. All else lives in devices, streams and groups.
//
//   - An internal stream a GPU, with what its devices share. Ranks that are threads have a Device each and
//     one GPU: its hardware queues are the process's, and so are the turns in which ranks enqueue. It ends
//     with its last user.
//   - A table of numbers a GPU. It is read only, so one serves all; giving it back would wait for every
//     kernel of the GPU.
//   - A page of host memory a GPU, by which its clocks are read (gpu_clock.cpp): never given back either.
//   - The driver's functions (driver_api.cpp): libcuda is loaded once a process.
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <numeric>
#include <vector>

#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"
#include "device/cuda/internal_stream.hpp"
#include "device/cuda/number_table.hpp"

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

Result<const std::uint32_t*> NumberTable::of(int gpu) {
  static std::mutex mutex;
  static std::map<int, const std::uint32_t*> tables;
  const std::lock_guard lock(mutex);
  if (const auto found = tables.find(gpu); found != tables.end()) return found->second;
  const CurrentDevice current(gpu);
  TANDEM_ASSIGN(const auto stream, InternalStream::of(gpu));
  std::vector<std::uint32_t> numbers(kSize);
  std::iota(numbers.begin(), numbers.end(), 0U);
  const std::size_t num_bytes = numbers.size() * sizeof(numbers[0]);
  void* table = nullptr;
  TANDEM_TRY(check_cuda("table of numbers", cudaMalloc(&table, num_bytes)));
  TANDEM_TRY(check_cuda("table of numbers", stream->run([&](cudaStream_t native) {
    return cudaMemcpyAsync(table, numbers.data(), num_bytes, cudaMemcpyHostToDevice, native);
  })));
  return tables[gpu] = static_cast<const std::uint32_t*>(table);
}

}  // namespace tandem::cuda
