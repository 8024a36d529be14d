#pragma once

#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>

namespace tandem::gemm {

// Checks of operands that several kinds of products share.

/// What mm() multiplies as it is.
[[nodiscard]] constexpr bool is_factor_type(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

/// Whether no scale is given at all.
[[nodiscard]] inline bool is_left_out(const TensorView& scale) {
  return scale.data == nullptr && scale.dim() == 0;
}

/// a [m, k], b [k, n], out [m, n] with strides >= 0; a and b of one factor type, out of it or f32.
[[nodiscard]] Result<void> check_matrices(std::string_view who, const TensorView& a, const TensorView& b,
                                          const TensorView& out);

}  // namespace tandem::gemm
