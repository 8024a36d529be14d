#include "gpu.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <latch>
#include <thread>
#include <utility>
#include <vector>

#include "launch.hpp"

namespace tandem::simulated {
namespace {

/// NVIDIA's libraries, which have a runtime of their own, must not find a GPU: streams and memory here are
/// none of theirs.
const int hidden_from_libraries = ::setenv("CUDA_VISIBLE_DEVICES", "", 1);

}  // namespace

int num_gpus() {
  static_cast<void>(hidden_from_libraries);
  constexpr int kDefault = 4;
  constexpr int kMost = 64;
  const char* const asked = std::getenv("SIMULATED_GPUS");
  return asked == nullptr ? kDefault : std::clamp(std::atoi(asked), 0, kMost);
}

Gpu& Gpu::of(int index) {
  // Never destroyed: threads of streams may run until the process is gone.
  static std::mutex mutex;
  static auto& gpus = *new std::map<int, std::unique_ptr<Gpu>>;
  const std::lock_guard lock(mutex);
  auto& gpu = gpus[index];
  if (!gpu) gpu = std::make_unique<Gpu>();
  return *gpu;
}

namespace {

std::atomic<int> kernels_begun = 0;
std::atomic<unsigned> most_blocks = 0;

void note_kernel(unsigned num_blocks) {
  ++kernels_begun;
  unsigned most = most_blocks;
  while (most < num_blocks && !most_blocks.compare_exchange_weak(most, num_blocks)) {
  }
}

}  // namespace

int num_kernels() {
  return kernels_begun;
}

unsigned largest_grid() {
  return most_blocks.exchange(0);
}

void Gpu::run(const Launch& launch) {
  const std::size_t count = count_of(launch.grid);
  note_kernel(static_cast<unsigned>(count));
  std::latch left(static_cast<std::ptrdiff_t>(count));
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < count; ++i) {
      const uint3 index = place_in(launch.grid, static_cast<unsigned>(i));
      blocks_.emplace_back([&launch, &left, index] {
        run_block(launch, index);
        left.count_down();
      });
    }
    constexpr int kMost = kMultiprocessors * kBlocksOfMultiprocessor;
    for (auto missing = static_cast<int>(blocks_.size()) - num_idle_; missing > 0 && num_workers_ < kMost;
         --missing)
      add_worker();
  }
  has_work_.notify_all();
  left.wait();
}

void Gpu::add_worker() {
  ++num_workers_;
  std::thread([this] { work(); }).detach();
}

void Gpu::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++num_idle_;
    has_work_.wait(lock, [this] { return !blocks_.empty(); });
    --num_idle_;
    const auto block = std::move(blocks_.front());
    blocks_.pop_front();
    lock.unlock();
    block();
    lock.lock();
  }
}

MemoryMap& MemoryMap::instance() {
  static auto& map = *new MemoryMap;
  return map;
}

void MemoryMap::add(const void* begin, const MemoryRange& range) {
  const std::lock_guard lock(mutex_);
  ranges_[reinterpret_cast<std::uintptr_t>(begin)] = range;
}

void MemoryMap::remove(const void* begin) {
  const std::lock_guard lock(mutex_);
  ranges_.erase(reinterpret_cast<std::uintptr_t>(begin));
}

std::optional<MemoryRange> MemoryMap::find(const void* address) {
  const std::lock_guard lock(mutex_);
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  auto next = ranges_.upper_bound(at);
  if (next == ranges_.begin()) return std::nullopt;
  const auto& [begin, range] = *--next;
  if (at >= begin + range.size) return std::nullopt;
  return range;
}

}  // namespace tandem::simulated
