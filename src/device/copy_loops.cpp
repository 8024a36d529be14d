#include "device/copy_loops.hpp"

#include <algorithm>
#include <cstdlib>

namespace tandem {

CopyLoops CopyLoops::between(const TensorView& from, const TensorView& to) {
  CopyLoops copy;
  copy.run_bytes = size_bytes(from.dtype);
  const std::int64_t element_bytes = copy.run_bytes;
  auto end = copy.loops.begin();
  for (int d = 0; d < from.dim(); ++d) {
    if (from.size(d) == 1) continue;
    const Loop loop = {from.size(d), from.stride(d) * element_bytes, to.stride(d) * element_bytes};
    // Into its place behind loops of the same stride; std::stable_sort would allocate.
    const auto place = std::upper_bound(copy.loops.begin(), end, loop, [](const Loop& x, const Loop& y) {
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
  for (auto loop = end; loop != copy.loops.begin();) {
    --loop;
    Loop* inside = num_merged == 0 ? nullptr : &merged[num_merged - 1];
    if (inside == nullptr && loop->from_stride_bytes == copy.run_bytes &&
        loop->to_stride_bytes == copy.run_bytes) {
      copy.run_bytes *= loop->size;
    } else if (inside != nullptr && loop->from_stride_bytes == inside->size * inside->from_stride_bytes &&
               loop->to_stride_bytes == inside->size * inside->to_stride_bytes) {
      inside->size *= loop->size;
    } else {
      merged[num_merged++] = *loop;
    }
  }
  copy.num_loops = static_cast<int>(num_merged);
  std::reverse_copy(merged.begin(), merged.begin() + copy.num_loops, copy.loops.begin());
  return copy;
}

}  // namespace tandem
