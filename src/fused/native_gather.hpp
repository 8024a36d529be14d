#pragma once

#include <cstdint>
#include <tandem/base/error.hpp>
#include <tandem/base/shard.hpp>
#include <tandem/base/support.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>

#include "fused/gather_problem.hpp"
#include "fused/native_line.hpp"
#include "gemm/product.hpp"

namespace tandem::fused {

// The moving half of the native gather: each rank pushes its shard, in pieces, into a slot of every other
// rank that its products do not send it to, and writes a word behind each piece. See
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

/// The product that all ranks ask for alike, of the planned columns: what differs between ranks is no reason
/// for another algorithm.
[[nodiscard]] gemm::Product agreed_product(const GatherProblem& problem, int patch_peers);

/// Whether the problem can be gathered natively at all. All ranks come to the same answer: it looks at what
/// they have agreed on only.
[[nodiscard]] Support can_run_native(const GatherProblem& problem, const Device& device);

/// By sizes alone, of shards of equal rows: whether the first wave of tiles needs more than the own shard,
/// which a copy engine would bring too late, and products that send their shards themselves, in patches, keep
/// pace with what multiplies them.
[[nodiscard]] bool patches_keep_pace(const GatherProblem& problem);

/// To how many ranks before this one the products themselves send its shard, in patches: to all where
/// patches_keep_pace(), to none elsewhere, or as Config::native_patches says. Nobody pushes it to them beside
/// the products. All ranks come to the same answer, as in can_run_native().
[[nodiscard]] int patch_peers(const GatherProblem& problem, const Device& device);

struct NativePush {
  const TensorView& shard;  ///< this rank's, contiguous [rows, k]
  NativeChunks chunks;
  NativeSlot slot;
  int patch_peers = 0;  ///< to whom the products send
};
/// Pushes to one peer after the other, who needs the shard first first.
[[nodiscard]] Result<void> push_shard(const NativePush& push, const Group& group, Stream& side);

/// Later work on `stream` comes behind the chunks of `source`; none of the own rank is awaited.
[[nodiscard]] Result<void> await_shard(const NativeSlot& slot, const NativeChunks& chunks, int source,
                                       Stream& stream);

}  // namespace tandem::fused
