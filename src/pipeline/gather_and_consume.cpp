#include <algorithm>
#include <array>
#include <tandem/base/shard.hpp>

#include "base/alignment.hpp"
#include "base/format.hpp"
#include "base/row_bytes.hpp"
#include "base/try.hpp"
#include "pipeline/lanes.hpp"
#include "pipeline/schedules.hpp"

namespace tandem::pipeline {
namespace {

using trace::StepKind;

std::int64_t slot_bytes(const TensorView& gathered, int world) {
  return aligned(largest_part_bytes(gathered, world), kSubBufferAlignment);
}

/// The fused op has checked the user's arguments; what fails here is its own mistake.
Result<void> check(const GatherAndConsume& work, const symm::Handle& workspace) {
  const auto num_shards = static_cast<int>(work.shards.size());
  const int world = workspace.world_size();
  if (num_shards < 1 || num_shards > kMaxShards || work.gathered.size() != work.shards.size()) {
    return failf(ErrorCode::kInternal,
                 "gather_and_consume: got {} shards for {} outputs, need the same, 1 to {}", num_shards,
                 work.gathered.size(), kMaxShards);
  }
  if (work.in_place && num_shards != 1) {
    return failf(ErrorCode::kInternal, "gather_and_consume: got {} shards in place, need 1", num_shards);
  }
  for (int i = 0; i < num_shards; ++i) {
    const TensorView& shard = work.shards[i];
    const TensorView& gathered = work.gathered[i];
    bool fits = shard.is_contiguous() && gathered.is_contiguous() && shard.dim() == gathered.dim() &&
                shard.dim() >= 1 && shard.dtype == gathered.dtype;
    for (int d = 0; fits && d < shard.dim(); ++d) {
      fits = shard.size(d) ==
             (d == 0 ? shard_of(gathered.size(0), world, workspace.rank()).size : gathered.size(d));
    }
    if (!fits) {
      return failf(ErrorCode::kInternal, "gather_and_consume: shard {} does not fit into {} on rank {} of {}",
                   to_string(shard), to_string(gathered), workspace.rank(), world);
    }
  }
  const std::int64_t needed = gather_workspace_bytes(work.gathered, world);
  if (workspace.buffer_size_bytes() < needed) {
    return failf(ErrorCode::kInternal, "gather_and_consume: got a workspace of {} bytes, need {}",
                 workspace.buffer_size_bytes(), needed);
  }
  return {};
}

using Chunks = std::array<TensorView, kMaxShards>;

/// The walk itself, over the shards of one call.
class Gather {
 public:
  Gather(const GatherAndConsume& work, symm::Handle& workspace, Lanes lanes)
      : work_(work), workspace_(workspace), lanes_(lanes) {}

  Result<void> run();

 private:
  [[nodiscard]] int world() const { return workspace_.world_size(); }
  [[nodiscard]] int rank() const { return workspace_.rank(); }
  Result<void> publish(const Lane& lane);
  Result<void> get(const Lane& lane, int source);
  Result<void> consume(const Lane& lane, int source);
  Result<void> keep_own(const Lane& lane);
  /// Source's chunks of the gathered tensors.
  [[nodiscard]] Chunks chunks_of(int source) const;

  const GatherAndConsume& work_;
  symm::Handle& workspace_;
  Lanes lanes_;
};

Result<void> Gather::run() {
  const Lane& current = lanes_.current();
  if (!work_.in_place) TANDEM_TRY(publish(current));
  TANDEM_TRY(lanes_.barrier(current, 1));  // all shards are published
  TANDEM_TRY(lanes_.join(current));

  lanes_.note({.kind = StepKind::kConsumeOwn, .stream = current.role, .peer = rank()});
  TANDEM_TRY(work_.consumer(work_.shards, rank(), current.stream));
  // Sources r+1, r+2, ...: no two ranks read the same one in a step.
  for (int step = 1; step < world(); ++step) {
    const Lane& lane = lanes_.of_step(step);
    const int source = (rank() + step) % world();
    TANDEM_TRY(get(lane, source));
    TANDEM_TRY(consume(lane, source));
  }
  if (work_.keep_own) TANDEM_TRY(keep_own(lanes_.of_step(world())));

  TANDEM_TRY(lanes_.join(lanes_.side()));
  return lanes_.barrier(current, 0);  // peers may use the workspace again
}

Result<void> Gather::publish(const Lane& lane) {
  lanes_.note({.kind = StepKind::kPublish, .stream = lane.role});
  std::int64_t at_bytes = 0;
  for (std::size_t i = 0; i < work_.shards.size(); ++i) {
    const TensorView& shard = work_.shards[i];
    TANDEM_ASSIGN(const TensorView slot, workspace_.get_buffer(rank(), shard.sizes, shard.dtype,
                                                               at_bytes / size_bytes(shard.dtype)));
    TANDEM_TRY(lane.stream.copy(shard, slot));
    at_bytes += slot_bytes(work_.gathered[i], world());
  }
  return {};
}

Result<void> Gather::get(const Lane& lane, int source) {
  lanes_.note({.kind = StepKind::kGet, .stream = lane.role, .peer = source});
  const Chunks chunks = chunks_of(source);
  if (work_.in_place)
    return work_.in_place->handle->get(lane.stream, chunks[0], source, work_.in_place->offset);
  std::int64_t at_bytes = 0;
  for (std::size_t i = 0; i < work_.shards.size(); ++i) {
    TANDEM_TRY(workspace_.get(lane.stream, chunks[i], source, at_bytes / size_bytes(chunks[i].dtype)));
    at_bytes += slot_bytes(work_.gathered[i], world());
  }
  return {};
}

Result<void> Gather::consume(const Lane& lane, int source) {
  lanes_.note({.kind = StepKind::kConsume, .stream = lane.role, .peer = source});
  const Chunks chunks = chunks_of(source);
  return work_.consumer(std::span(chunks.data(), work_.shards.size()), source, lane.stream);
}

Result<void> Gather::keep_own(const Lane& lane) {
  lanes_.note({.kind = StepKind::kKeepOwn, .stream = lane.role, .peer = rank()});
  const Chunks chunks = chunks_of(rank());
  for (std::size_t i = 0; i < work_.shards.size(); ++i) {
    TANDEM_TRY(lane.stream.copy(work_.shards[i], chunks[i]));
  }
  return {};
}

Chunks Gather::chunks_of(int source) const {
  Chunks chunks;
  for (std::size_t i = 0; i < work_.shards.size(); ++i) {
    const Shard part = shard_of(work_.gathered[i].size(0), world(), source);
    chunks[i] = work_.gathered[i].narrow(0, part.offset, part.size);
  }
  return chunks;
}

}  // namespace

std::int64_t gather_workspace_bytes(std::span<const TensorView> gathered, int world) {
  std::int64_t num_bytes = 0;
  for (const TensorView& tensor : gathered) num_bytes += slot_bytes(tensor, world);
  return std::max(num_bytes, kSubBufferAlignment);
}

Result<void> gather_and_consume(const GatherAndConsume& work, symm::Handle& workspace,
                                const StreamPair& streams) {
  TANDEM_TRY(check(work, workspace));
  Lanes lanes(streams, workspace, symm::kGatherChannel, work.trace);
  return lanes.finish(Gather(work, workspace, lanes).run());
}

}  // namespace tandem::pipeline
