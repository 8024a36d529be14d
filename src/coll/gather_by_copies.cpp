#include <tandem/base/shard.hpp>

#include "base/try.hpp"
#include "coll/algorithms.hpp"
#include "coll/backend.hpp"
#include "coll/side_lane.hpp"
#include "symm/peers_handle.hpp"
#include "timeline/timeline_impl.hpp"

// A shard that is not symmetric is published in the workspace. The lane copies the own shard to the output.
//
//   caller's stream                                  lane
//   own shard to the workspace, if not symmetric     own shard to the output
//   barrier: all are there
//   get the shards of r+1, r+2, ...
//   behind the lane: barrier, peers may write again what was read

namespace tandem::coll {
namespace {

std::int64_t shard_bytes(const Problem& problem, const Device& /*device*/) {
  return problem.is_read_in_place ? 0 : problem.part_bytes;
}

class Gather {
 public:
  Gather(const GatherCall& call, const EndBarrier& end, Backend& backend, Stream& stream)
      : call_(call),
        end_(end),
        source_(end.workspace),
        backend_(backend),
        stream_(stream),
        parts_(end.group, stream) {}

  [[nodiscard]] Result<void> enqueue(const SideLane& lane) const;

 private:
  /// Where rank q's shard lies for its peers.
  [[nodiscard]] TensorView published(int q) const;
  [[nodiscard]] TensorView part_of(int q) const {
    const Shard part = shard_of(call_.output.size(call_.dim), source_.world_size(), q);
    return call_.output.narrow(call_.dim, part.offset, part.size);
  }
  [[nodiscard]] Result<void> copy_own(Stream& on, const timeline::Parts& parts) const {
    TANDEM_TRY(backend_.copy_aside(call_.input, part_of(source_.rank()), on));
    return parts.copied("copy the own part", call_.input.size_bytes());
  }
  [[nodiscard]] Result<void> publish() const;
  [[nodiscard]] Result<void> get_from_peers() const;

  const GatherCall& call_;
  const EndBarrier& end_;
  symm::Handle& source_;
  Backend& backend_;
  Stream& stream_;
  timeline::Parts parts_;
};

TensorView Gather::published(int q) const {
  auto* const block = static_cast<std::byte*>(source_.buffer_ptrs()[static_cast<std::size_t>(q)]);
  return TensorView::contiguous(block + call_.symmetric_at_bytes.value_or(0), part_of(q).sizes,
                                call_.input.dtype, call_.input.device);
}

Result<void> Gather::publish() const {
  if (call_.symmetric_at_bytes) return {};
  const TensorView own = published(source_.rank());
  TANDEM_TRY(backend_.copy_aside(call_.input, own, stream_));
  return parts_.copied("publish", own.size_bytes());
}

Result<void> Gather::get_from_peers() const {
  const int world = source_.world_size();
  for (int step = 1; step < world; ++step) {
    const int source = (source_.rank() + step) % world;
    const TensorView from = published(source);
    if (from.numel() == 0) continue;
    TANDEM_TRY(symm::get_view(source_, stream_, from, part_of(source), source));
    TANDEM_TRY(parts_.got(source, from.size_bytes()));
  }
  return {};
}

Result<void> Gather::enqueue(const SideLane& lane) const {
  if (lane.overlaps()) {
    const timeline::Parts beside(end_.group, lane.stream());
    TANDEM_TRY(beside.begin());
    TANDEM_TRY(copy_own(lane.stream(), beside));
  }
  TANDEM_TRY(publish());
  TANDEM_TRY(symm::barrier_aside(source_, stream_, end_.channel + 1, 0));  // all are there
  TANDEM_TRY(parts_.met(end_.channel + 1, symm::meets_on_stream(source_)));
  TANDEM_TRY(get_from_peers());
  // Nobody waits for it, so it comes last where it takes the time of the others.
  return lane.overlaps() ? Result<void>() : copy_own(stream_, parts_);
}

Result<void> run(const GatherCall& call, const EndBarrier& end, Stream& stream) {
  TANDEM_ASSIGN(Backend* const backend, backend_of("all_gather", stream));
  const Gather gather(call, end, *backend, stream);
  TANDEM_TRY(with_side_lane(end.group, stream, [&](const SideLane& lane) { return gather.enqueue(lane); }));
  TANDEM_TRY(symm::barrier_aside(end.workspace, stream, end.channel, 1));  // peers may write what was read
  return timeline::Parts(end.group, stream).met(end.channel, symm::meets_on_stream(end.workspace));
}

}  // namespace

const GatherAlgorithm kGatherByCopies = {.name = "copies",
                                         .leaves_multiprocessors = true,
                                         .can_run = &always,
                                         .workspace_bytes = &shard_bytes,
                                         .run = &run};

}  // namespace tandem::coll
