#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>
#include <tandem/trace/enqueue_trace.hpp>

#include "base/function_ref.hpp"

namespace tandem::pipeline {

/// Enqueues work on `stream` that reads one source's chunks (one a shard, in the order of the shards).
using Consumer = FunctionRef<Result<void>(std::span<const TensorView> chunks, int source, Stream& stream)>;
/// Enqueues work on `stream` that writes the partial for rank `destination` into `to`.
using Producer = FunctionRef<Result<void>(int destination, const TensorView& to, Stream& stream)>;

struct GatherAndConsume {
  std::span<const TensorView> shards;   ///< this rank's, contiguous [s_r, ...]
  std::span<const TensorView> gathered; ///< contiguous [total, ...]; the shard rule on dim 0
  bool keep_own = true;                 ///< copy the own shards into `gathered` too
  Consumer consumer;
  trace::EnqueueTrace* trace = nullptr;
};
/// Bytes of workspace that gather_and_consume needs, the same on every rank.
[[nodiscard]] std::int64_t gather_workspace_bytes(std::span<const TensorView> gathered, int world);
[[nodiscard]] Result<void> gather_and_consume(const GatherAndConsume& work, symm::Handle& workspace, Group& group,
                                              Stream& current);

struct ProduceAndAllToAll {
  /// [W, chunk sizes...] contiguous: receives every rank's partial for this one, in rank order.
  TensorView stack;
  int scatter_dim = 0;     ///< which dim of a chunk is scattered, not counting W
  std::int64_t total = 0;  ///< its size over all ranks; the chunk for d has shard_of(total, W, d) there
  Producer producer;
  trace::EnqueueTrace* trace = nullptr;
};
/// Bytes of workspace that produce_and_all_to_all needs, the same on every rank.
[[nodiscard]] std::int64_t scatter_workspace_bytes(const TensorView& stack, int scatter_dim, std::int64_t total,
                                                   int world);
[[nodiscard]] Result<void> produce_and_all_to_all(const ProduceAndAllToAll& work, symm::Handle& workspace,
                                                  Group& group, Stream& current);

}  // namespace tandem::pipeline
