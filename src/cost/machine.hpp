#pragma once

#include <cstdint>

// Every rate of hardware that predictions count with, with its source; what is predicted from them is in
// docs/design/cost.md. Rates that a program measures where it runs are not here: see base/core_rates.hpp and
// <tandem/cost/rates.hpp>. Included by .cu files.

namespace tandem::cost {

/// What a kernel of 16-bit products takes beside its tiles' time in the tensor cores.
struct KernelTimes {
  double launch_us;  ///< once
  double begin_us;   ///< and end of each tile, whatever k
};

/// How many times as long the tiles of native kernels take in the tensor cores, by the factors' type.
struct Slowness {
  double bf16;
  double f16;
  double f8;
};

/// A collective takes start_us, and for the bytes that a rank gets so many times what the link takes.
struct CollectiveTimes {
  double start_us;
  double slowness;
  double slowness_of_a_peer;  ///< added where there is one peer; where there are p, a p-th of it
};

/// What one GPU of a node takes. Units: _us microseconds, _per_us per microsecond.
struct GpuRates {
  int multiprocessors;

  // Products. The tensor cores take (tile_us + column_us * n) * k / kTileDepth for a tile of 128 rows and n
  // columns of 16-bit elements.
  double tile_us;
  double column_us;
  KernelTimes vendor;               ///< of cuBLASLt's kernels
  double vendor_slowness;           ///< so many times as long take their tiles
  double vendor_read_bytes_per_us;  ///< at most, of operands and output from and to memory
  double vendor_split_us;           ///< added where k is cut: the parts are summed
  KernelTimes native;               ///< of the library's own kernels
  Slowness native_slowness;
  double read_bytes_per_us;  ///< at most, of a native kernel's b from memory, with the wait for a
  double native_unpaired;    ///< so many times as long takes a tile of 128 columns whose b no other CTA loads
  double half_flops_per_us;  ///< of large 16-bit products, where only their flops are known
  double eighth_flops_per_us;  ///< of 8-bit products
  double full_flops_per_us;    ///< of f32 products

  // What engines copy from GPU to GPU.
  double link_bytes_per_us;  ///< of one large copy, in one direction
  double pull_start_us;      ///< of a pipelined op's copies, with their words and meetings
  double pull_slowness;      ///< so many times as long take these copies where nothing hides them
  double push_start_us;      ///< until the first copy of a native op's shard starts
  double push_us;            ///< of each such copy, with its word, beside its bytes
  double recorded_scale_us;  ///< added where scales travel in a recording, which sends them behind a barrier

  // What multiprocessors send, in pieces, while they multiply.
  std::int64_t piece_bytes_per_us;  ///< the pace that is set for all together; more would hold up loads
  double first_piece_us;            ///< what comes in pieces keeps pace from there on
  double first_wave_bytes_per_us;   ///< what of the pace is left in a first wave, which begins without pieces
  double later_wave_bytes_per_us;   ///< and up to the beginning of a later one
  double sender_round_us;           ///< of a multiprocessor that only sends: a round, beside its bytes
  double sender_bytes_per_us;

  // Partials that go to their owners from inside a product.
  double partial_bytes_per_ns;  ///< the pace that is set for all multiprocessors together
  double partial_bytes_per_us;  ///< that leaves a GPU in fact, where its product leaves no time for more
  double owner_us;              ///< until an owner has what was sent last
  double owner_column_us;       ///< what it adds to a tile of its own, a column

  // What kernels move in collectives.
  CollectiveTimes by_mailboxes;
  CollectiveTimes gather;
  CollectiveTimes sum;

  // Pushed scatters.
  double put_us;      ///< of each copy to a peer, behind its product and with its word, beside its bytes
  double put_cut_us;  ///< what a product loses by standing between copies and waits
  double memory_bytes_per_us;  ///< that a sum of tensors in the GPU's own memory reads and writes

  // Schedules.
  double barrier_us;  ///< a meeting of all ranks on their streams
  double cut_us;      ///< what a product loses by being cut into chunks, each
};
inline constexpr double kTileDepth = 8192;

/// An H200 of a node with NVLink, November 2026. Behind each number: the rows of bench/results/ that it is
/// held against.
inline constexpr GpuRates kH200 = {
    .multiprocessors = 132,  // data sheet

    // Tiles of both kinds of kernels: h200_native_kernels_*.json, and t_gemm_us of h200_x2_random_preset.json
    // and h200_x4_native.json.
    .tile_us = 4.5,
    .column_us = 0.308,
    .vendor = {.launch_us = 3.8, .begin_us = 2.5},  // t_gemm_us, as above
    .vendor_slowness = 1,
    .vendor_read_bytes_per_us = 3.0e6,  // 64 rows of h200_x2_native.json
    .vendor_split_us = 3,
    .native = {.launch_us = 2.3, .begin_us = 4},  // h200_native_kernels_row_strips.json
    .native_slowness = {.bf16 = 1, .f16 = 1, .f8 = 1},
    .read_bytes_per_us = 2.5e6,  // h200_x2_few_rows.json
    // h200_native_kernels_divisors.json, the kernel of 1x1; 256 columns: h200_native_kernels_orders.json
    .native_unpaired = 1.15,
    // 2 m n k / t_gemm_us of h200_x*.json: the median is 681e6, of products from 100 GFLOP on 748e6.
    .half_flops_per_us = 700e6,
    // No file. They are to the data sheet's 1979 and 67 TFLOP/s about what 700 is to its 989; never TF32.
    .eighth_flops_per_us = 1.2e9,
    .full_flops_per_us = 45e6,

    .link_bytes_per_us = 360e3,  // h200_x2_random_preset.json, h200_x4_native.json; data sheet: 450e3
    .pull_start_us = 28,         // h200_x2_random_preset.json, `pipelined`
    .pull_slowness = 1.1,        // the same
    .push_start_us = 3,          // h200_x2_random_preset_fitted_column.json, `native`
    .push_us = 4.2,              // the same
    .recorded_scale_us = 5,      // h200_x2_f8_recorded.json beside h200_x2_f8.json, scales of rows

    .piece_bytes_per_us = 220'000,     // h200_x4_native.json, `native` of up to 2048 rows
    .first_piece_us = 8,               // the same
    .first_wave_bytes_per_us = 160e3,  // h200_x2_native_folded.json
    .later_wave_bytes_per_us = 200e3,  // the same
    .sender_round_us = 3,              // h200_x4_native_by_four_senders.json
    .sender_bytes_per_us = 30e3,       // the same

    .partial_bytes_per_ns = 280,    // h200_x2_native_scatter.json
    .partial_bytes_per_us = 117e3,  // h200_x2_random_preset_fitted_column.json
    .owner_us = 8,                  // h200_x2_native_scatter.json
    .owner_column_us = 0.02,        // the same

    // t_serial_us - t_gemm_us of h200_x2_native.json, h200_x2_random_preset.json, h200_x4_native.json.
    .by_mailboxes = {.start_us = 7, .slowness = 1.25, .slowness_of_a_peer = 0},
    .gather = {.start_us = 10.5, .slowness = 1.12, .slowness_of_a_peer = 0.18},
    .sum = {.start_us = 10, .slowness = 1.12, .slowness_of_a_peer = 0},

    .put_us = 15,                  // h200_x2_pushed_scatter.json, h200_x2_f8_random_preset.json
    .put_cut_us = 4,               // the same
    .memory_bytes_per_us = 2.4e6,  // the same, in one chunk

    .barrier_us = 10,  // h200_x2_random_preset.json, `pipelined`
    .cut_us = 2};      // the same

/// What the library does not measure of a core, held against bench/results/cpu_2_cores_predictions.json and
/// cpu_16_cores_predictions.json.
struct CoreTimes {
  double barrier_us;  ///< a meeting of all ranks, of which each has a core
  double cut_us;      ///< what a product loses by being cut into chunks, each, beside packing
  double noise;       ///< predictions that differ by a smaller share count as equal
};
inline constexpr CoreTimes kCore = {.barrier_us = 20, .cut_us = 10, .noise = 0.02};

}  // namespace tandem::cost
