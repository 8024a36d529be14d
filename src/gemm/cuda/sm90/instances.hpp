#pragma once

#include <span>

#include "gemm/cuda/sm90/async_input_kernel.hpp"

namespace tandem::gemm::cuda {

// One a file of instances/: type, whether b comes column-major (t) or row-major (n), columns of a tile,
// cluster. Each takes a compiler a minute, so each has to win somewhere; where is said behind it.
// Large outputs: the fewest loads a flop.
[[nodiscard]] AsyncInputKernel bf16_t_256_2x1();
// 3584 and 7168 columns, and others that it divides: whole waves where 256 wastes the last one.
[[nodiscard]] AsyncInputKernel bf16_t_224_2x1();
// 6656 columns, and others that it divides.
[[nodiscard]] AsyncInputKernel bf16_t_208_2x1();
// Few rows: twice the tiles of 224, so that a first wave can be the own shard alone.
[[nodiscard]] AsyncInputKernel bf16_t_112_2x1();
// Chunks with an odd number of tile rows, and the smallest outputs.
[[nodiscard]] AsyncInputKernel bf16_t_128_1x1();
// Few rows, which are bound by b's way from memory: as many multiprocessors read it as there are. Those of a
// cluster share a.
[[nodiscard]] AsyncInputKernel bf16_t_64_1x1();
[[nodiscard]] AsyncInputKernel bf16_t_64_1x2();
[[nodiscard]] AsyncInputKernel bf16_t_64_1x4();
// A row-major b, and f16: one each that takes every chunk.
[[nodiscard]] AsyncInputKernel bf16_n_256_1x1();
[[nodiscard]] AsyncInputKernel f16_t_256_1x1();
[[nodiscard]] AsyncInputKernel f16_n_256_1x1();
// f8e4m3 into bf16, scaled. The same columns as of bf16, with fast sums.
[[nodiscard]] AsyncInputKernel f8_t_256_2x1();
[[nodiscard]] AsyncInputKernel f8_t_224_2x1();
[[nodiscard]] AsyncInputKernel f8_t_112_2x1();
[[nodiscard]] AsyncInputKernel f8_t_128_1x1();
// Sums that are promoted: of f8 as exact as f32 has them, and with scales along k.
[[nodiscard]] AsyncInputKernel f8_exact_t_256_2x1();
[[nodiscard]] AsyncInputKernel f8_exact_t_128_1x1();

/// All of them.
[[nodiscard]] std::span<const AsyncInputKernel> async_input_kernels();

}  // namespace tandem::gemm::cuda
