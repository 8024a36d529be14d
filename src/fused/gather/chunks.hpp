#pragma once

#include <cstdint>
#include <tandem/base/support.hpp>
#include <tandem/device/device.hpp>

#include "fused/gather/problem.hpp"
#include "gemm/product.hpp"

namespace tandem::fused {

// How the native gather cuts shards into chunks, and which of them products send. See
// docs/design/native_all_gather_matmul.md.

/// How the gathered rows are cut into chunks: each shard into as many as the others, all of them `rows` rows
/// but the last one of all.
struct NativeChunks {
  std::int64_t rows = 1;
  std::int64_t count = 1;
  std::int64_t per_rank = 1;
  /// Whether chunk i is shard i of all rows by the shard rule over `count`, as gemm::async_input_mm() needs
  /// it.
  bool by_shard_rule = true;
};
/// Of a problem that can_run_native() accepts.
[[nodiscard]] NativeChunks native_chunks(const GatherProblem& problem);

/// Rows that one product consumes as they arrive.
struct NativeBlock {
  Shard chunks;
  Shard units;
  std::int64_t chunks_per_rank = 1;
};
/// One has all rows; or each has those of one host, where several hosts have several ranks, so that the words
/// of a block are those of this host's ranks, one after the other. Also where there are several b's: those of
/// the own host are multiplied with all of them before the first product waits for another host.
[[nodiscard]] int num_native_blocks(const GatherProblem& problem);
[[nodiscard]] NativeBlock native_block(const GatherProblem& problem, int idx);

/// The product of all rows with the planned columns: bf16 where the problem does not say the type of out.
[[nodiscard]] gemm::Product planned_product(const GatherProblem& problem);

/// The product that all ranks ask for alike, of the planned columns: what differs between ranks is no reason
/// for another algorithm.
[[nodiscard]] gemm::Product agreed_product(const GatherProblem& problem, int piece_peers);
/// The same, of a block of rows.
[[nodiscard]] gemm::Product agreed_product(const GatherProblem& problem, int piece_peers,
                                           const NativeBlock& block);

/// Whether the problem can be gathered natively at all. All ranks come to the same answer: it looks at what
/// they have agreed on only.
[[nodiscard]] Support can_run_native(const GatherProblem& problem, const Device& device);

/// By sizes alone, of shards of equal rows: whether the first wave of tiles needs more than the own shard,
/// which a copy engine would bring too late, and products that send their shards themselves, in pieces, keep
/// pace with what multiplies them.
[[nodiscard]] bool pieces_keep_pace(const GatherProblem& problem);

/// To how many ranks before this one the products themselves send its shard, in pieces: to all where
/// pieces_keep_pace(), to none elsewhere, or as Config::native_pieces says; few rows on GPUs to all, or the
/// gather is not native. Nobody pushes it to them beside the products. All ranks come to the same answer, as
/// in can_run_native().
[[nodiscard]] int piece_peers(const GatherProblem& problem, const Device& device);

}  // namespace tandem::fused
