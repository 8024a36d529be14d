#pragma once

#include <tandem/base/tensor.hpp>

#include "gemm/cuda/operands.hpp"
#include "gemm/cuda/round_kernel.hpp"

namespace tandem::gemm::cuda {

/// The way from the f32 product, out.taken, to the output, out.caller.
[[nodiscard]] Rounding rounding_of(const Operand& out, const TensorView& bias);

}  // namespace tandem::gemm::cuda
