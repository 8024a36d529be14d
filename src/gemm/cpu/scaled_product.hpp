#pragma once

#include <array>
#include <cstdint>
#include <tandem/base/dtype.hpp>
#include <tandem/base/error.hpp>
#include <tandem/base/shape.hpp>

#include "gemm/cpu/tile_kernels.hpp"
#include "gemm/product.hpp"

namespace tandem::gemm::cpu {

/// All dims of a tensor but the last.
using RowDims = std::array<std::int64_t, kMaxDims - 1>;

/// A tensor [rows..., columns] of a type known elsewhere. Units: strides in elements.
struct Rows {
  void* data = nullptr;  ///< null: left out
  RowDims strides{};
  std::int64_t col_stride = 0;
};

/// What goes along the columns, or is one value for all of them (stride 0).
struct Columns {
  const void* data = nullptr;  ///< null: left out
  std::int64_t stride = 0;
};

/// The scales of b; what they belong to is known elsewhere.
struct ColumnScales {
  const float* data = nullptr;    ///< null: left out
  std::int64_t block_stride = 0;  ///< from one block of k to the next
  std::int64_t stride = 0;
};

/// A scaled product as the CPU runs it: small enough to be captured by a task.
struct ScaledProduct {
  std::int64_t n = 0;
  std::int64_t k = 0;
  /// a's dims but the last, merged as far as every operand allows; at least one.
  std::int8_t num_row_dims = 0;
  DType a_dtype = DType::kF32;
  DType b_dtype = DType::kF32;
  DType out_dtype = DType::kF32;
  DType bias_dtype = DType::kF32;
  DType addend_dtype = DType::kF32;
  Scale a_scale_kind = Scale::kNone;
  Scale b_scale_kind = Scale::kNone;
  RowDims row_sizes{};
  Rows a;
  Rows a_scale;  ///< its columns are blocks of k
  Rows out;
  Rows addend;
  Matrix b;
  Panels packed_b = {};  ///< with data: b's values, and b is not read
  ColumnScales b_scale;
  Columns bias;
  const float* result_scale = nullptr;  ///< null: 1

  [[nodiscard]] bool is_scaled_along_k() const {
    return is_along_k(a_scale_kind) || is_along_k(b_scale_kind);
  }
};
[[nodiscard]] ScaledProduct scaled_product_of(const Product& product, const ProductArgs& args);

/// Packs b, multiplies blocks of rows and columns, and makes one pass over their f32 sums: scales, bias,
/// addend, rounding. Scales along k come earlier: into the sums, with each block of k. Errors: kOutOfMemory
/// for the blocks.
[[nodiscard]] Result<void> run(const ScaledProduct& product, const TileKernels& kernels);

}  // namespace tandem::gemm::cpu
