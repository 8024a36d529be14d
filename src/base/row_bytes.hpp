#pragma once

#include <cstdint>
#include <tandem/base/shard.hpp>
#include <tandem/base/tensor.hpp>

namespace tandem {

/// Of one index of dim 0, contiguous; also where there is none.
[[nodiscard]] inline std::int64_t row_bytes(const TensorView& view) {
  std::int64_t num_bytes = size_bytes(view.dtype);
  for (int d = 1; d < view.dim(); ++d) num_bytes *= view.size(d);
  return num_bytes;
}

/// Of the largest of `world` parts of dim 0: what buffers and slots are sized for.
[[nodiscard]] inline std::int64_t largest_part_bytes(const TensorView& whole, int world) {
  return shard_stride(whole.size(0), world) * row_bytes(whole);
}

}  // namespace tandem
