#pragma once

#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>

namespace tandem::gemm {

// Checks of operands that plain and scaled products share.

/// What mm() multiplies as it is.
[[nodiscard]] constexpr bool is_factor_type(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

/// Every element of `out` is written exactly once: a stride reaches beyond all elements of the smaller ones.
[[nodiscard]] Result<void> check_is_injective(std::string_view who, const TensorView& out);

}  // namespace tandem::gemm
