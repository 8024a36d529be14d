#include "device/cuda/number_table.hpp"

#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <numeric>
#include <vector>

#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"
#include "device/cuda/internal_stream.hpp"

namespace tandem::cuda {

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
