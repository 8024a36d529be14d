#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "block.hpp"

namespace tandem::simulated {

/// How many GPUs this process sees: SIMULATED_GPUS, 4 by default.
[[nodiscard]] int num_gpus();

inline constexpr int kMultiprocessors = 16;
inline constexpr int kBlocksOfMultiprocessor = 4;
inline constexpr std::size_t kMemoryBytes = std::size_t{8} << 30;

/// The multiprocessors of a GPU: blocks of kernels begin in the order in which they were launched, and no
/// more at one time than there is room for. So kernels that wait keep others from starting, as they do on a
/// GPU.
class Gpu {
 public:
  /// Of this process, for good.
  [[nodiscard]] static Gpu& of(int index);

  /// Returns when all blocks have ended.
  void run(const Launch& launch);

 private:
  void add_worker();
  void work();

  std::mutex mutex_;
  std::condition_variable has_work_;
  std::deque<std::function<void()>> blocks_;
  int num_workers_ = 0;
  int num_idle_ = 0;
};

/// What is known of a range of memory.
struct MemoryRange {
  std::size_t size = 0;
  int gpu = 0;
  bool is_pooled = false;
};

/// All of this process that GPUs have allocated or mapped.
class MemoryMap {
 public:
  [[nodiscard]] static MemoryMap& instance();
  void add(const void* begin, const MemoryRange& range);
  void remove(const void* begin);
  [[nodiscard]] std::optional<MemoryRange> find(const void* address);

 private:
  std::mutex mutex_;
  std::map<std::uintptr_t, MemoryRange> ranges_;
};

}  // namespace tandem::simulated
