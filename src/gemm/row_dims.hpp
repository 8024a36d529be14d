#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace tandem::gemm {

/// Drops dims of one row, and joins each dim to the one before it where all operands step through both alike.
/// `strides` are the operands', of as many dims as `sizes`. Returns how many dims are left: at least one.
[[nodiscard]] inline int merge_row_dims(std::int64_t* sizes, int num_dims,
                                        std::span<std::int64_t* const> strides) {
  int kept = 0;
  for (int d = 0; d < num_dims; ++d) {
    const std::int64_t size = sizes[d];
    if (size == 1) continue;
    const bool joins = kept > 0 && std::all_of(strides.begin(), strides.end(), [&](const std::int64_t* of) {
                         return of[kept - 1] == of[d] * size;
                       });
    if (!joins) ++kept;
    for (std::int64_t* const of : strides) of[kept - 1] = of[d];
    sizes[kept - 1] = joins ? sizes[kept - 1] * size : size;
  }
  if (kept == 0) sizes[kept++] = 1;
  return kept;
}

/// Where row `row`, counted row-major over at least one dim, begins. Units: elements.
[[nodiscard]] inline std::int64_t row_offset(const std::int64_t* sizes, int num_dims,
                                             const std::int64_t* strides, std::int64_t row) {
  std::int64_t offset = 0;
  for (int d = num_dims - 1; d > 0; --d) {
    offset += row % sizes[d] * strides[d];
    row /= sizes[d];
  }
  return offset + row * strides[0];
}

}  // namespace tandem::gemm
