#pragma once

#include "device/cuda/elements.cuh"
#include "gemm/cuda/row_offset.cuh"
#include "gemm/cuda/sums_epilogue.hpp"

namespace tandem::gemm::cuda {

/// What one element is multiplied by, and what is added to it; read only where the epilogue has it.
struct EpilogueTerms {
  float a_scale = 0;
  float b_scale = 0;
  float bias = 0;
  float result_scale = 0;
  float addend = 0;
};

/// All of the epilogue but the rounding to out's type. Never contracted: the CPU rounds after each step.
__device__ inline float finished(const SumsEpilogue& epilogue, float sum, const EpilogueTerms& terms) {
  if (epilogue.a_scale.data != nullptr) sum = __fmul_rn(sum, terms.a_scale);
  if (epilogue.b_scale.data != nullptr) sum = __fmul_rn(sum, terms.b_scale);
  if (epilogue.bias.data != nullptr) sum = __fadd_rn(sum, terms.bias);
  if (epilogue.result_scale != nullptr) sum = __fmul_rn(sum, terms.result_scale);
  if (epilogue.addend.data != nullptr) sum = __fadd_rn(sum, terms.addend);
  return sum;
}

/// The terms of a column, but for those of its row.
__device__ inline EpilogueTerms terms_of_column(const SumsEpilogue& epilogue, std::int64_t col) {
  EpilogueTerms terms;
  const ColumnVector& b_scale = epilogue.b_scale;
  if (b_scale.data != nullptr) terms.b_scale = static_cast<const float*>(b_scale.data)[col * b_scale.stride];
  const ColumnVector& bias = epilogue.bias;
  if (bias.data != nullptr) terms.bias = tandem::cuda::load_widened(bias.data, col * bias.stride, bias.dtype);
  if (epilogue.result_scale != nullptr) terms.result_scale = *epilogue.result_scale;
  return terms;
}

}  // namespace tandem::gemm::cuda
