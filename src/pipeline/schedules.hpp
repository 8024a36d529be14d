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

// The two schedules that overlap copies with products on two streams. They know bytes, not matrices: a tensor
// is [total, ...] with the shard rule on dim 0, and what the bytes of a chunk mean is up to the consumer and
// the producer. Both expect that the ranks have agreed, and allocate nothing. See docs/design/schedules.md.

/// Enqueues work on `stream` that reads one source's chunks (one a shard, in the order of the shards).
using Consumer = FunctionRef<Result<void>(std::span<const TensorView> chunks, int source, Stream& stream)>;
/// Enqueues work on `stream` that writes the partial for rank `destination` into `to`.
using Producer = FunctionRef<Result<void>(int destination, const TensorView& to, Stream& stream)>;

/// The caller's stream, and one of the library that runs beside it and is joined to it in the end.
struct StreamPair {
  Stream& current;
  Stream& side;
};

/// Most tensors that travel together in one gather.
inline constexpr int kMaxShards = 8;

/// Symmetric memory that already holds the (only) shard, at the same place on every rank: nothing is
/// published.
struct ShardInPlace {
  symm::Handle* handle = nullptr;
  std::int64_t offset = 0;  ///< in elements, from the handle's offset
};

struct GatherAndConsume {
  std::span<const TensorView> shards;    ///< this rank's, contiguous [s_r, ...]
  std::span<const TensorView> gathered;  ///< contiguous [total, ...]; the shard rule on dim 0
  bool keep_own = true;                  ///< copy the own shards into `gathered` too
  std::optional<ShardInPlace> in_place;
  Consumer consumer;  ///< called once a source, for the own shards first
  trace::EnqueueTrace* trace = nullptr;
};
/// Bytes of workspace that gather_and_consume needs, the same on every rank; not 0, since it needs the pads.
[[nodiscard]] std::int64_t gather_workspace_bytes(std::span<const TensorView> gathered, int world);
[[nodiscard]] Result<void> gather_and_consume(const GatherAndConsume& work, symm::Handle& workspace,
                                              const StreamPair& streams);

struct ProduceAndAllToAll {
  /// [W, s_r, ...] contiguous: receives every rank's partial for this one, in rank order.
  TensorView stack;
  std::int64_t total =
      0;              ///< of dim 1 of the stack, over all ranks; the partial for d has shard_of(total, W, d)
  Producer producer;  ///< called once a destination, for this rank last
  bool nudge = true;  ///< nap before the first product of `current`; off only to measure what that does
  trace::EnqueueTrace* trace = nullptr;
};
/// Bytes of workspace that produce_and_all_to_all needs, the same on every rank; not 0, since it needs the
/// pads.
[[nodiscard]] std::int64_t scatter_workspace_bytes(const TensorView& stack, std::int64_t total);
[[nodiscard]] Result<void> produce_and_all_to_all(const ProduceAndAllToAll& work, symm::Handle& workspace,
                                                  const StreamPair& streams);

}  // namespace tandem::pipeline
