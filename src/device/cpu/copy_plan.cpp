#include "device/cpu/copy_plan.hpp"

#include <algorithm>
#include <cstdlib>
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

CopyPlan::CopyPlan(const TensorView& from, const TensorView& to)
    : from_(from.data_as<const std::byte>()),
      to_(to.data_as<std::byte>()),
      run_bytes_(size_bytes(from.dtype)) {
  const std::int64_t element_bytes = run_bytes_;
  auto end = loops_.begin();
  for (int d = 0; d < from.dim(); ++d) {
    if (from.size(d) == 1) continue;
    const Loop loop = {from.size(d), from.stride(d) * element_bytes, to.stride(d) * element_bytes};
    // Into its place behind loops of the same stride; std::stable_sort would allocate.
    const auto place = std::upper_bound(loops_.begin(), end, loop, [](const Loop& x, const Loop& y) {
      return std::abs(x.to_stride_bytes) > std::abs(y.to_stride_bytes);
    });
    std::move_backward(place, end, end + 1);
    *place = loop;
    ++end;
  }
  // From the inside out: a loop that steps by exactly the run before it makes the run longer; one that steps
  // by exactly the whole of the loop inside it becomes part of that loop.
  std::array<Loop, kMaxDims> merged;
  std::size_t num_merged = 0;
  for (auto loop = end; loop != loops_.begin();) {
    --loop;
    Loop* inside = num_merged == 0 ? nullptr : &merged[num_merged - 1];
    if (inside == nullptr && loop->from_stride_bytes == run_bytes_ && loop->to_stride_bytes == run_bytes_) {
      run_bytes_ *= loop->size;
    } else if (inside != nullptr && loop->from_stride_bytes == inside->size * inside->from_stride_bytes &&
               loop->to_stride_bytes == inside->size * inside->to_stride_bytes) {
      inside->size *= loop->size;
    } else {
      merged[num_merged++] = *loop;
    }
  }
  num_loops_ = static_cast<int>(num_merged);
  std::reverse_copy(merged.begin(), merged.begin() + num_loops_, loops_.begin());
}

void CopyPlan::run() const {
  if (num_loops_ == 0) {
    std::memcpy(to_, from_, static_cast<std::size_t>(run_bytes_));
  } else {
    run_loops(0, from_, to_);
  }
}

void CopyPlan::run_loops(int loop_idx, const std::byte* from, std::byte* to) const {
  const Loop& loop = loops_[static_cast<std::size_t>(loop_idx)];
  if (loop_idx == num_loops_ - 1) {
    run_innermost(loop, from, to);
    return;
  }
  for (std::int64_t i = 0; i < loop.size; ++i) {
    run_loops(loop_idx + 1, from + i * loop.from_stride_bytes, to + i * loop.to_stride_bytes);
  }
}

void CopyPlan::run_innermost(const Loop& loop, const std::byte* from, std::byte* to) const {
  switch (run_bytes_) {
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
                    static_cast<std::size_t>(run_bytes_));
      }
  }
}

}  // namespace tandem::cpu
