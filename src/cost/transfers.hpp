#pragma once

#include <cstdint>

#include "cost/machine.hpp"

// Times of what travels between the GPUs of a node, in microseconds, and what keeps pace with products. They
// follow from sizes alone.

namespace tandem::cost {

enum class Collective { kAllGather, kReduceScatter, kAllReduce };

/// A collective between two products: a start and its bytes. `part_bytes`: of the largest shard, or of the
/// largest rank's part of the input; up to `mailbox_bytes` of them go through mailboxes. An all-reduce is a
/// scatter and a gather, or one exchange of whole inputs through mailboxes, whichever takes less. Within a
/// fifth of 2 and 4 ranks' from 0.3 to 70 MB (bench/results/h200_x2_native.json, h200_x2_random_preset.json,
/// h200_x4_native.json: t_serial_us - t_gemm_us).
[[nodiscard]] double collective_us(Collective collective, std::int64_t part_bytes, int world,
                                   std::int64_t mailbox_bytes, const GpuRates& gpu = kH200);

/// A low-contention collective of so many bytes beside a product that takes the whole GPU. Two ranks' gathers
/// of 1 to 64 MiB take 0.9 to 1.2 times as long, scatters 0.7 to 1.9 times (h200_x2_contention.json).
[[nodiscard]] double low_contention_us(double received_bytes, const GpuRates& gpu = kH200);

/// Whether a copy engine brings a whole shard of rows while the one before it is multiplied by `n` columns,
/// with time to spare; the rows and their length cancel out, and so do elements of one byte or two.
[[nodiscard]] bool copies_keep_pace(std::int64_t n, const GpuRates& gpu = kH200);

/// Shards of equal rows, one a rank, that products send to each other while they multiply.
struct SentShards {
  int world = 1;
  std::int64_t rows = 0;  ///< of a shard
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t element_bytes = 2;
};
/// Whether the first wave of tiles needs more than the own shard, which a copy engine would bring too late,
/// and what products send in pieces keeps pace with what multiplies it.
[[nodiscard]] bool pieces_keep_pace(const SentShards& shards, const GpuRates& gpu = kH200);

}  // namespace tandem::cost
