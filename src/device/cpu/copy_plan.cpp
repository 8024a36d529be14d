#include "device/cpu/copy_plan.hpp"

#include <cstring>

namespace tandem::cpu {
namespace {

/// Copies of a size known to the compiler become single moves.
template <std::size_t kBytes>
void copy_elements(std::int64_t count, const std::byte* from, std::int64_t from_stride_bytes, std::byte* to,
                   std::int64_t to_stride_bytes) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * to_stride_bytes, from + i * from_stride_bytes, kBytes);
  }
}

}  // namespace

void CopyPlan::run() const {
  if (loops_.num_loops == 0) {
    std::memcpy(to_, from_, static_cast<std::size_t>(loops_.run_bytes));
  } else {
    run_loops(0, from_, to_);
  }
}

void CopyPlan::run_loops(int loop_idx, const std::byte* from, std::byte* to) const {
  const CopyLoops::Loop& loop = loops_.loops[static_cast<std::size_t>(loop_idx)];
  if (loop_idx == loops_.num_loops - 1) {
    run_innermost(loop, from, to);
    return;
  }
  for (std::int64_t i = 0; i < loop.size; ++i) {
    run_loops(loop_idx + 1, from + i * loop.from_stride_bytes, to + i * loop.to_stride_bytes);
  }
}

void CopyPlan::run_innermost(const CopyLoops::Loop& loop, const std::byte* from, std::byte* to) const {
  switch (loops_.run_bytes) {
    case 1:
      return copy_elements<1>(loop.size, from, loop.from_stride_bytes, to, loop.to_stride_bytes);
    case 2:
      return copy_elements<2>(loop.size, from, loop.from_stride_bytes, to, loop.to_stride_bytes);
    case 4:
      return copy_elements<4>(loop.size, from, loop.from_stride_bytes, to, loop.to_stride_bytes);
    case 8:
      return copy_elements<8>(loop.size, from, loop.from_stride_bytes, to, loop.to_stride_bytes);
    default:
      for (std::int64_t i = 0; i < loop.size; ++i) {
        std::memcpy(to + i * loop.to_stride_bytes, from + i * loop.from_stride_bytes,
                    static_cast<std::size_t>(loops_.run_bytes));
      }
  }
}

}  // namespace tandem::cpu
