#pragma once

#include <cstdint>
#include <tandem/base/shape.hpp>
#include <tandem/base/tensor.hpp>

namespace tandem::coll {

/// The elements of a view in the order in which they lie in memory, as rows of neighbours, and the index that
/// each has in the view. Plain data for hosts and GPUs. An element that a stride of 0 repeats comes once,
/// with the smallest of its indices.
/// Units: elements.
struct ElementRows {
  const void* data = nullptr;  ///< the first in memory
  std::int64_t num_rows = 0;   ///< 0: the view is empty
  std::int64_t row_length = 1;
  std::int64_t step = 1;  ///< from one of a row to the next

  // Where rows begin: dims outside a row, those that lie behind each other merged.
  int num_outer = 0;
  std::int64_t outer_sizes[kMaxDims] = {};
  std::int64_t outer_strides[kMaxDims] = {};

  // The index of an element: all dims, in the order of memory, and how far in row-major order each steps.
  std::int64_t first_index = 0;  ///< of the first in memory
  int num_dims = 0;
  std::int64_t sizes[kMaxDims] = {};
  std::int64_t weights[kMaxDims] = {};

  [[nodiscard]] static ElementRows of(const TensorView& view);

  [[nodiscard]] constexpr std::int64_t offset_of_row(std::int64_t row) const {
    return walk(row, num_outer, outer_sizes, outer_strides);
  }
  /// The row-major index in the view of what comes at `position`.
  [[nodiscard]] constexpr std::int64_t index_at(std::int64_t position) const {
    return first_index + walk(position, num_dims, sizes, weights);
  }

 private:
  [[nodiscard]] static constexpr std::int64_t walk(std::int64_t at, int num, const std::int64_t* sizes,
                                                   const std::int64_t* steps) {
    std::int64_t sum = 0;
    for (int d = num - 1; d > 0; --d) {
      sum += at % sizes[d] * steps[d];
      at /= sizes[d];
    }
    return num == 0 ? 0 : sum + at * steps[0];
  }
};

}  // namespace tandem::coll
