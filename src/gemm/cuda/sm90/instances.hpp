#pragma once

#include <span>

#include "gemm/cuda/sm90/async_input_kernel.hpp"

namespace tandem::gemm::cuda {

// The tiles of the kernels, the widest first. Each wins somewhere, which is said behind it.

/// 16 bits, b column-major.
using ColumnMajorTiles =
    TileList<InstanceTile<256, 2>,  // large outputs: the fewest loads per flop
             // 3584 and 7168 columns: whole waves where 256 wastes the last one
             InstanceTile<224, 2>, InstanceTile<208, 2>,  // 6656 columns, and others that it divides
             // three rows of tiles, of up to 384 rows
             InstanceTile<192, 1, 2>,
             // few rows: twice the tiles of 224, so that the own shard fills a first wave
             InstanceTile<112, 2>,
             // chunks with an odd number of tile rows, and the smallest outputs
             InstanceTile<128, 1>,
             // up to 128 rows, which are bound by b's way from memory: nearly all multiprocessors read it
             InstanceTile<64, 1, 2>>;
/// 16 bits, b row-major. Where it was measured: bench/results/h200_native_kernels_orders.json.
using RowMajorTiles = TileList<InstanceTile<256, 2>,   // large outputs, 8192 columns
                               InstanceTile<256, 1>,   // chunks with an odd number of tile rows
                               InstanceTile<224, 2>,   // 7168 columns, and others that it divides
                               InstanceTile<192, 2>,   // 8192 rows of 8192 columns
                               InstanceTile<128, 2>,   // few rows: as 112 columns of the other order
                               InstanceTile<128, 1>>;  // the smallest outputs with an odd number of tile rows
/// f8 with fast sums, as of 16 bits.
using ScaledTiles =
    TileList<InstanceTile<256, 2>, InstanceTile<224, 2>, InstanceTile<112, 2>, InstanceTile<128, 1>>;
/// f8 with sums that are added up in f32, in parts of 128 columns.
using PromotedTiles = TileList<InstanceTile<256, 2>, InstanceTile<128, 1>>;

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
