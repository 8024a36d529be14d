#include <algorithm>
#include <vector>

#include "base/format.hpp"
#include "fused/gather/algorithms.hpp"

namespace tandem::fused {

using program::all_of;
using program::kCurrent;
using program::kSide;
using program::Lane;
using program::Operand;
using program::RootId;
using trace::StepKind;

namespace {

/// Where shards lie for peers: in the own workspace, one behind the other; or where the caller has them.
std::vector<RootId> add_published(GatherBuilder& gather) {
  if (gather.problem().in_place_offset >= 0) {
    gather.roots().in_place = gather.steps().caller("a in place", program::Space::kInPlace);
    return {gather.roots().in_place};
  }
  std::vector<RootId> published;
  std::int64_t at = 0;
  for (const Travelling& tensor : gather.tensors()) {
    const std::int64_t own = tensor.part_of(gather.world(), gather.rank()).size;
    published.push_back(gather.steps().at(program::Space::kWorkspace, at,
                                          fmt::format("published {}", tensor.name), tensor.sizes_of(own),
                                          tensor.dtype));
    at += program::aligned_to_root(tensor.part_bytes(gather.world()));
  }
  gather.steps().memory().workspace_bytes = at;
  return published;
}

void publish(GatherBuilder& gather, const std::vector<RootId>& published) {
  GatherBuilder::Label label = StepKind::kPublish;
  for (std::size_t i = 0; i < published.size(); ++i) {
    gather.steps().copy(kCurrent, gather.own_shard(static_cast<int>(i)), all_of(published[i]), label);
    label.reset();
  }
}

void get(GatherBuilder& gather, Lane lane, int source, const std::vector<RootId>& published) {
  GatherBuilder::Label label = StepKind::kGet;
  for (std::size_t i = 0; i < published.size(); ++i) {
    gather.steps().get(lane, source, all_of(published[i]),
                       gather.arrived(static_cast<int>(i), gather.from(source)), label);
    label.reset();
  }
}

void consume(GatherBuilder& gather, Lane lane, int source, StepKind label) {
  if (gather.problem().gathers_last()) return gather.slice_arrived(lane, source);
  gather.multiply(lane, gather.from(source), label, [](int) { return true; });
}

}  // namespace

/// Two streams of chunks: a copy of one runs beside the products of another. See docs/design/schedules.md.
GatherProgram build_pipelined_gather(const GatherProblem& problem, int rank, const Device&) {
  if (problem.num_hosts > 1) return build_gather_across_hosts(problem, Algorithm::kPipelined, rank);
  GatherBuilder gather(problem, Algorithm::kPipelined, rank, 2);
  gather.add_gathered();
  const std::vector<RootId> published = add_published(gather);
  program::Builder& steps = gather.steps();
  // The barriers need the workspace's pads, also where nothing is published.
  steps.memory().workspace_bytes = std::max(steps.memory().workspace_bytes, program::kRootAlignment);

  gather.copy_shards();
  if (problem.in_place_offset < 0) publish(gather, published);
  steps.barrier(kCurrent, 1);  // all shards are published
  steps.join(kCurrent, kSide);
  consume(gather, kCurrent, rank, StepKind::kConsumeOwn);
  // Sources r+1, r+2, ...: no two ranks read the same one in a step. Odd steps go to the side lane.
  for (int step = 1; step < problem.world; ++step) {
    const Lane lane = step % 2 == 1 ? kSide : kCurrent;
    const int source = (rank + step) % problem.world;
    get(gather, lane, source, published);
    consume(gather, lane, source, StepKind::kConsume);
  }
  if (!problem.gathers_last()) gather.keep_own(problem.world % 2 == 1 ? kSide : kCurrent, StepKind::kKeepOwn);
  steps.join(kSide, kCurrent);
  steps.barrier(kCurrent, 0);  // peers may use the workspace again
  if (problem.gathers_last()) gather.finish_slices();
  return {gather.take(), gather.roots()};
}

}  // namespace tandem::fused
