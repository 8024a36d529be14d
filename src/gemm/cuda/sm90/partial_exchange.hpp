#pragma once

// What a kernel is told that gives the rows of its product to their owners. Included by .cu files.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <tandem/device/chunk_waits.hpp>
#include <tandem/symm/kernel.hpp>

#include "device/cuda/kernel_list.hpp"
#include "gemm/cuda/sm90/sum_epilogue.hpp"
#include "gemm/partial_grid.hpp"

namespace tandem::gemm::cuda {

/// Rows [begin, end) of those that an owner's strips are cut from.
struct StripRows {
  int begin = 0;
  int end = 0;
  [[nodiscard]] constexpr bool has(int row) const { return row >= begin && row < end; }
};

/// Partials that go to their owners, and what an owner makes of those that come: see partial_exchange.cuh.
struct PartialExchange {
  PartialGrid grid;  ///< of one owner where nothing is exchanged
  symm::KernelHandle ranks;
  // See symm::KernelInboxPlace.
  std::int64_t counters_bytes = 0;
  std::int64_t words_bytes = 0;
  std::int64_t words_stride = 0;
  std::int64_t data_bytes = 0;
  std::int64_t data_stride = 0;
  int rows = 0;        ///< of all owners
  int shard_rows = 0;  ///< of each owner but perhaps the last
  int n = 0;
  bool gives_all = false;       ///< each owner owns all rows, which share tiles
  std::byte* staged = nullptr;  ///< room for staged_bytes()
  float4* aside = nullptr;      ///< room for aside_bytes()
  int aside_tiles = 0;          ///< of a CTA
  int block_ns = 0;             ///< in which a CTA pushes a block, at the least
  int parties = 0;              ///< of all CTAs, that end one by one
  // Of the own rows: sum / divisor + bias.
  float divisor = 1;
  ColumnBias bias;
  bool rounds_own = false;  ///< own partials are rounded before they are added, as those of others are
  ChunkWaitLog log;         ///< where waits for partials are noted, if anywhere
  void* product = nullptr;  ///< where this rank's partials of all rows are kept: [rows, n] of out's type

  [[nodiscard]] constexpr bool is_any() const { return grid.owners > 1; }
  /// Those that an owner's strips are cut from, and the first of them among all rows.
  [[nodiscard]] constexpr int rows_of(int owner) const {
    return grid.shares_tiles ? rows : shard_of(owner).end - shard_of(owner).begin;
  }
  [[nodiscard]] constexpr int first_of(int owner) const {
    return grid.shares_tiles ? 0 : shard_of(owner).begin;
  }
  /// Those of them that it owns.
  [[nodiscard]] constexpr StripRows owned_by(int owner) const {
    return grid.shares_tiles && !gives_all ? shard_of(owner) : StripRows{0, rows_of(owner)};
  }
  /// Rows of a batch of tiles where batches are the owners of one matrix's rows; 0: they are not.
  [[nodiscard]] constexpr int batch_rows() const { return is_any() && !grid.shares_tiles ? shard_rows : 0; }
  /// Of tiles in this batch; where rows share tiles this rank has a part in all.
  [[nodiscard]] constexpr int owner_of(int batch) const { return grid.shares_tiles ? ranks.rank : batch; }

 private:
  /// Among all rows.
  [[nodiscard]] constexpr StripRows shard_of(int owner) const {
    const int first = owner * shard_rows;
    return {first, rows - first < shard_rows ? rows : first + shard_rows};
  }
};

/// A CTA's tiles that wait for the warp that pushes them.
inline constexpr int kStagedTiles = 2;
/// Each of two warp groups has a strip of a tile.
[[nodiscard]] constexpr std::int64_t staged_bytes(int ctas, int tile_columns) {
  return std::int64_t{ctas} * kStagedTiles * 2 * (tile_columns / PartialGrid::kColumns) * PartialGrid::kBytes;
}
/// Of sums in f32 of own tiles that are added up later.
[[nodiscard]] constexpr std::int64_t aside_bytes(int ctas, int aside_tiles, int tile_columns) {
  return std::int64_t{ctas} * aside_tiles * 2 * PartialGrid::kRows * tile_columns * 4;
}
/// Two warp groups that multiply, a warp that pushes, and one that polls.
inline constexpr int kPartiesOfCta = 4;

/// For a rank that cannot multiply and exchange in one kernel: what it has multiplied before.
struct GivePartialsLaunch {
  PartialExchange exchange;
  const void* product = nullptr;  ///< [rows, n] row-major
  bool is_f32 = false;            ///< else of out's type
  bool is_half = false;           ///< out is f16, else bf16
  void* out = nullptr;            ///< own rows
  int most_ctas = 1;              ///< that run at one time
};
[[nodiscard]] cudaError_t launch_give_partials(GivePartialsLaunch what, cudaStream_t stream);

[[nodiscard]] tandem::cuda::KernelList give_partials_kernels();

}  // namespace tandem::gemm::cuda
