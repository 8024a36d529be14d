#pragma once

#include <cstdint>
#include <tandem/base/dtype.hpp>

#include "cost/machine.hpp"

// Times of products on a GPU that does nothing else, in microseconds. They follow from sizes alone.

namespace tandem::cost {

/// By their flops, of factors with elements of so many bytes: 1, 2 or 4.
[[nodiscard]] double product_us(double flops, std::int64_t element_bytes, const GpuRates& gpu = kH200);

/// A product of 16-bit elements by the vendor's library: whole waves of the tiles that are best for it, cut
/// along k too where that fills them. Within 6 % on average of 81 shapes from 10 us to 2.4 ms, a quarter of
/// each (bench/results/h200_*.json). Of elements of one byte, a step of a tile is taken to be twice as deep:
/// nobody has measured that.
[[nodiscard]] double vendor_us(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t element_bytes = 2,
                               const GpuRates& gpu = kH200);

/// A tile of 128 rows of a native kernel; `is_paired`: another CTA loads its b too. `slowness`: of its
/// factors' type.
[[nodiscard]] double native_tile_us(std::int64_t columns, std::int64_t k, bool is_paired,
                                    const GpuRates& gpu = kH200, double slowness = 1);

/// How the chunks of a left operand arrive, in the order in which they are taken.
struct Arrival {
  std::int64_t chunk_bytes = 0;
  std::int64_t complete = 0;        ///< so many are there from the start
  std::int64_t in_pieces = 0;       ///< so many of the next ones; engines copy the others one by one
  std::int64_t chunks_at_once = 1;  ///< chunks that travel in pieces at one time
};
/// When the chunk that is taken as number `step` is there, from the start of the kernel.
[[nodiscard]] double arrival_us(const Arrival& arrival, std::int64_t step, const GpuRates& gpu = kH200);

/// A product of a native kernel, whose left operand arrives in chunks.
struct NativeWaves {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;  ///< of 16 bits
  DType factors = DType::kBF16;
  std::int64_t tile_rows = 128;
  std::int64_t tile_columns = 128;
  std::int64_t cluster_rows = 1;  ///< tiles of a cluster
  std::int64_t cluster_columns = 1;
  int clusters_at_once = 1;
  std::int64_t chunks = 1;
  std::int64_t step_rows = 0;    ///< rows that are taken together, in every step but perhaps the last
  std::int64_t step_chunks = 1;  ///< chunks of a step
  Arrival arrival;
};
/// Cluster number i starts when cluster number i - clusters_at_once has ended and its chunk has arrived.
/// Source:  docs/design/native_all_gather_matmul.md
[[nodiscard]] double native_us(const NativeWaves& waves, const GpuRates& gpu = kH200);

/// Who owns the rows of a product.
struct Owners {
  int count = 1;
  bool share_tiles = false;  ///< `waves` has one step then, else a step an owner
  bool own_all = false;
};
/// A product whose rows go to the ranks that own them, each as many, the own ones last. Blocks travel while
/// later tiles are multiplied; those of the last wave travel behind it.
/// Source:  docs/design/native_matmul_reduce_scatter.md
[[nodiscard]] double departing_us(const NativeWaves& waves, const Owners& owners,
                                  const GpuRates& gpu = kH200);

}  // namespace tandem::cost
