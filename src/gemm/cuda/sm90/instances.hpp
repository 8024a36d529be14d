#pragma once

#include <span>

#include "gemm/cuda/sm90/async_input_kernel.hpp"

namespace tandem::gemm::cuda {

// One file of instances/ each: type, and whether b comes column-major (t) or row-major (n). All kernels of a
// file cost a compiler little more than one: see ADR 36.
[[nodiscard]] std::span<const AsyncInputKernel> bf16_t();
[[nodiscard]] std::span<const AsyncInputKernel> bf16_n();
[[nodiscard]] std::span<const AsyncInputKernel> f16_t();
[[nodiscard]] std::span<const AsyncInputKernel> f16_n();
[[nodiscard]] std::span<const AsyncInputKernel> f8_t();
[[nodiscard]] std::span<const AsyncInputKernel> f8_exact_t();

/// All of them.
[[nodiscard]] std::span<const AsyncInputKernel> async_input_kernels();

}  // namespace tandem::gemm::cuda
