#pragma once

#include <cstdint>

namespace tandem::gemm::cuda {

/// The scales of a's rows, f32. Units: strides in elements; 0 where all have the same.
struct RowScales {
  const float* data = nullptr;  ///< null: 1
  std::int64_t row_stride = 0;
  std::int64_t block_stride = 0;  ///< from 128 of k to the next
};

/// What a launch multiplies its sums by. Pointers to null leave their part out.
struct SumScales {
  // Row 0 is that of AsyncInputLaunch's a, or complete.
  RowScales rows;
  RowScales complete_rows;
  const float* columns = nullptr;  ///< of b
  int column_stride = 0;           ///< from a column, or along_k from 128 columns, to the next
  std::int64_t block_stride = 0;   ///< from 128 of k to the next
  bool along_k = false;            ///< sums are scaled every 128 of k
  /// Peers write `rows` of a chunk before its signal, also where its elements come in pieces.
  bool rows_arrive = false;
};

}  // namespace tandem::gemm::cuda
