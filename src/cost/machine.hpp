#pragma once

#include <cstdint>

// Every rate of hardware that predictions count with. Rates that a program measures on its own machine are
// not here: see base/core_rates.hpp and <tandem/cost/rates.hpp>. Included by .cu files.

namespace tandem::cost {

/// Tiles of a kernel for 16-bit products. A tile of 128 rows and n columns takes
/// begin_us + (tile_us + column_us * n) * k / kTileDepth.
struct TileRates {
  double launch_us;  ///< of a kernel, before its first tile
  double begin_us;   ///< and end of a tile, whatever k
  double tile_us;
  double column_us;
};
inline constexpr double kTileDepth = 8192;

/// A collective: start_us, and the bytes of all peers at the link's rate, so many times as long.
struct CollectiveRates {
  double start_us;
  double slowness;
  double slowness_of_a_peer;  ///< added where there is one peer; where there are p, a p-th of it
};

/// What a GPU of a node takes. Units: _us microseconds, _per_us per microsecond.
struct GpuRates {
  int multiprocessors;

  // Products.
  TileRates vendor;            ///< of cuBLASLt 13
  double vendor_split_us;      ///< added where k is cut, for the sum of the parts
  TileRates native;            ///< of the library's own kernels
  double native_unpaired;      ///< so many times as long takes a tile whose b no other CTA loads
  double half_flops_per_us;    ///< of 16-bit products that no model of waves is asked about
  double report_flops_per_us;  ///< the same in reports of the graph passes
  double eighth_flops_per_us;  ///< of 8-bit products
  double full_flops_per_us;    ///< of f32 products

  // Copies between GPUs, by copy engines.
  double copy_bytes_per_us;
  double copy_start_us;       ///< of a pipelined op's copies, with their words and meetings
  double copy_slowness;       ///< so many times as long take a pipelined op's copies that nothing hides
  double first_chunk_us;      ///< of a shard that engines push: until the first copy starts,
  double chunk_us;            ///< each copy, with its word,
  double chunk_bytes_per_us;  ///< and its bytes

  // Patches: what multiprocessors send while they multiply.
  std::int64_t patch_bytes_per_us;  ///< of all together; more queues up and holds up loads
  double first_patch_us;            ///< what comes in patches keeps pace from there on
  double first_wave_bytes_per_us;   ///< of all together in the first wave, with what is lost before it
  double later_wave_bytes_per_us;
  double sender_round_us;      ///< of a multiprocessor that only sends: a round beside its bytes
  double sender_bytes_per_us;  ///< and its bytes

  // Collectives, by the library's kernels.
  CollectiveRates by_mailboxes;
  CollectiveRates gather;
  CollectiveRates sum;

  // Schedules.
  double barrier_us;  ///< a meeting of all ranks on their streams
  double cut_us;      ///< what a product loses by being cut into chunks, each
};

inline constexpr GpuRates kH200 = {
    .multiprocessors = 132,
    .vendor = {.launch_us = 3.8, .begin_us = 2.5, .tile_us = 4.5, .column_us = 0.3},
    .vendor_split_us = 3,
    .native = {.launch_us = 2.3, .begin_us = 4, .tile_us = 4.5, .column_us = 0.308},
    .native_unpaired = 1.15,
    .half_flops_per_us = 700e6,
    .report_flops_per_us = 6.5e8,
    .eighth_flops_per_us = 1.2e9,
    .full_flops_per_us = 4.5e7,
    .copy_bytes_per_us = 360e3,
    .copy_start_us = 28,
    .copy_slowness = 1.1,
    .first_chunk_us = 4,
    .chunk_us = 4.2,
    .chunk_bytes_per_us = 370e3,
    .patch_bytes_per_us = 220'000,
    .first_patch_us = 8,
    .first_wave_bytes_per_us = 160e3,
    .later_wave_bytes_per_us = 200e3,
    .sender_round_us = 3,
    .sender_bytes_per_us = 30e3,
    .by_mailboxes = {.start_us = 7, .slowness = 1.25, .slowness_of_a_peer = 0},
    .gather = {.start_us = 10.5, .slowness = 1.12, .slowness_of_a_peer = 0.18},
    .sum = {.start_us = 10, .slowness = 1.12, .slowness_of_a_peer = 0},
    .barrier_us = 10,
    .cut_us = 2};

/// What the library does not measure of a core.
struct CoreCosts {
  double barrier_us;  ///< a meeting of all ranks, of which each has a core
  double cut_us;      ///< what a product loses by being cut into chunks, each, beside packing
  double noise;       ///< predictions are no better: algorithms that differ by a smaller share count as equal
};
inline constexpr CoreCosts kCore = {.barrier_us = 20, .cut_us = 10, .noise = 0.02};

}  // namespace tandem::cost
