#pragma once

// Included by .cu files.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "device/cuda/kernel_list.hpp"

namespace tandem::cuda {

/// What a host thread and kernels of one GPU tell each other of their clocks, in pinned host memory.
struct ClockPage {
  static constexpr std::uint32_t kOver = UINT32_MAX;
  static constexpr int kPlaces = 8;

  alignas(128) std::uint32_t asked = 0;    ///< the number of a question; kOver ends the kernel
  alignas(128) std::uint64_t answer = 0;   ///< the timer's lower half when the kernel saw it, and its number
  alignas(128) std::int64_t begin_ns = 0;  ///< the whole timer, when the kernel began
  // Before and behind an event.
  std::int64_t before_ns[kPlaces] = {};
  std::int64_t behind_ns[kPlaces] = {};

  [[nodiscard]] static constexpr std::uint32_t number_of(std::uint64_t answer) {
    return static_cast<std::uint32_t>(answer);
  }
  /// Of a kernel that began at `begin_ns` and ended before the lower half had come round.
  [[nodiscard]] static constexpr std::int64_t time_of(std::uint64_t answer, std::int64_t begin_ns) {
    const auto since = static_cast<std::uint32_t>((answer >> 32) - static_cast<std::uint64_t>(begin_ns));
    return begin_ns + std::int64_t{since};
  }
};

[[nodiscard]] KernelList clock_kernels();
/// One thread answers each question of `page` with the time at which it saw it, until the host is over, or
/// `limit_ns` have passed.
[[nodiscard]] cudaError_t launch_answer_questions(ClockPage* page, std::int64_t limit_ns,
                                                  cudaStream_t stream);
/// *to = the timer, when the stream gets here.
[[nodiscard]] cudaError_t launch_note_time(std::int64_t* to, cudaStream_t stream);

}  // namespace tandem::cuda
