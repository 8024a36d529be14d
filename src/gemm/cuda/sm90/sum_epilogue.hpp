#pragma once

#include <cstdint>
#include <tandem/base/dtype.hpp>

namespace tandem::gemm::cuda {

/// A number for each column, which is added to f32 sums.
struct ColumnBias {
  const void* data = nullptr;  ///< null: there is none
  DType dtype = DType::kF32;   ///< or bf16 or f16
  int stride = 0;
};

/// What a launch makes of its sums, behind their scales: (sum + bias) * result + addend in f32, rounded once.
/// Pointers to null leave their part out.
struct SumEpilogue {
  ColumnBias bias;
  const float* result = nullptr;
  /// [rows, n] without holes, from a multiple of 16 bytes on: of f32, or of the type of out, which it may be.
  const void* addend = nullptr;
  DType addend_dtype = DType::kF32;
};

}  // namespace tandem::gemm::cuda
