#pragma once

#include <cstdint>
#include <tandem/base/numeric.hpp>

#include "gemm/packed_weight.hpp"
#include "gemm/product.hpp"
#include "gemm/row_tensor.hpp"

namespace tandem::gemm::cpu {

/// How a row is rounded to 8 bits: q = round(x * scale) + zero.
struct RowScale {
  float scale = 1;
  std::int32_t zero = 0;
};
/// Of a row whose values are between lo <= 0 and hi >= 0.
[[nodiscard]] RowScale row_scale_of(float lo, float hi);

/// Rows that are multiplied together, rounded to 8 bits.
struct FourBitRows {
  std::int64_t count = 0;
  std::int64_t k = 0;
  std::int64_t group = 0;
  std::int8_t* bytes = nullptr;   ///< of tiles of rows, one after another: [k / 4][rows of the tile][4]
  std::int32_t* sums = nullptr;   ///< [groups][count]: of the bytes
  std::int32_t* pairs = nullptr;  ///< [groups][count]: -zero in the low 16 bits, the sum in the high ones
  float* scales = nullptr;        ///< [count]
  std::int32_t* zeros = nullptr;  ///< [count]
};

/// The kernels of one instruction set.
struct FourBitKernels {
  void (*quantize_row)(const float* values, std::int64_t row, const FourBitRows& rows);
  void (*multiply_panel)(const FourBitRows& rows, const PackedWeight& weight, std::int64_t panel,
                         float* sums);
  void (*finish_row)(const float* sums, float scale, const float* bias, float* to);
  void (*finish_row_bf16)(const float* sums, float scale, const float* bias, BF16* to);
};
extern const FourBitKernels kFourBitAvx512;
extern const FourBitKernels kFourBitAvx2;
extern const FourBitKernels kFourBitScalar;

/// A product by 4-bit weights as the CPU runs it: small enough to be captured by a task.
struct FourBitProduct {
  const PackedWeight* weight = nullptr;
  int num_row_dims = 0;  ///< input's dims but the last, merged as far as the tensors allow; at least one
  std::int64_t row_sizes[kMaxDims - 1] = {};
  std::int64_t num_rows = 0;
  RowTensor input;
  RowTensor out;
  DType input_dtype = DType::kF32;
  DType out_dtype = DType::kF32;
};
[[nodiscard]] FourBitProduct four_bit_product_of(const Product& product, const ProductArgs& args);

/// Runs a product with scratch memory of the calling thread. Errors: kOutOfMemory.
[[nodiscard]] Result<void> run(const FourBitProduct& product, const FourBitKernels& kernels);

}  // namespace tandem::gemm::cpu
