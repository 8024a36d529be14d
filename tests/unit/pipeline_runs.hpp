#pragma once

#include <string>
#include <tandem/base/shard.hpp>
#include <tandem/trace/enqueue_trace.hpp>

#include "base/alignment.hpp"
#include "pipeline/lanes.hpp"
#include "pipeline/schedules.hpp"
#include "unit/pipeline_recorder.hpp"

namespace tandem::test {

/// What one rank enqueued: as the schedule traced it, and as its streams and its handle saw it.
struct Recorded {
  trace::EnqueueTrace trace;
  std::string calls;
  Result<void> result;
};

inline std::string joined(const CallLog& log) {
  std::string text;
  for (const std::string& call : log) text += fmt::format("{}{}", text.empty() ? "" : " ", call);
  return text;
}

/// One gather of 5 rows a rank and 3 columns, on rank `rank` of `world`.
inline Recorded record_gather(int world, int rank, bool keep_own = true, bool in_place = false) {
  Recorded recorded;
  CallLog log;
  RecorderDevice device;
  RecorderStream current(device, "cur", log);
  RecorderStream side(device, "bk", log);
  const std::int64_t total = 5 * world;
  std::vector<float> mine(15);
  std::vector<float> all(static_cast<std::size_t>(total * 3));
  const TensorView shard = TensorView::contiguous(mine.data(), {5, 3}, DType::kF32);
  const TensorView gathered = TensorView::contiguous(all.data(), {total, 3}, DType::kF32);
  RecorderHandle workspace(rank, world, pipeline::gather_workspace_bytes(std::span(&gathered, 1), world),
                           symm::kGatherChannel, device);
  current.set_published(workspace.own(), workspace.own() + workspace.buffer_size_bytes());
  const auto consume = [&](std::span<const TensorView> chunks, int source, Stream& stream) -> Result<void> {
    const bool own = chunks[0].data == shard.data;
    static_cast<RecorderStream&>(stream).add(fmt::format("use{}{}", source, own ? "(own)" : ""));
    return {};
  };
  pipeline::GatherAndConsume work{.shards = std::span(&shard, 1),
                                  .gathered = std::span(&gathered, 1),
                                  .keep_own = keep_own,
                                  .in_place = {},
                                  .consumer = consume,
                                  .trace = &recorded.trace};
  if (in_place) work.in_place = {&workspace, 0};
  recorded.result = pipeline::gather_and_consume(work, workspace, {current, side});
  recorded.calls = joined(log);
  return recorded;
}

/// One scatter of 5 rows a rank and 3 columns.
inline Recorded record_scatter(int world, int rank) {
  Recorded recorded;
  CallLog log;
  RecorderDevice device;
  RecorderStream current(device, "cur", log);
  RecorderStream side(device, "bk", log);
  std::vector<float> memory(static_cast<std::size_t>(world * 15));
  const TensorView stack = TensorView::contiguous(memory.data(), {world, 5, 3}, DType::kF32);
  RecorderHandle workspace(rank, world, pipeline::scatter_workspace_bytes(stack, 5 * world),
                           symm::kScatterChannel, device);
  workspace.set_slot_bytes(aligned(5 * 3 * 4, pipeline::kSubBufferAlignment));
  const auto produce = [&](int destination, const TensorView& to, Stream& stream) -> Result<void> {
    const bool own = to.data == stack.select(0, rank).data;
    static_cast<RecorderStream&>(stream).add(
        fmt::format("make{}->{}", destination, own ? "out" : workspace.slot_of(to.data, rank)));
    return {};
  };
  recorded.result = pipeline::produce_and_all_to_all(
      {.stack = stack, .total = 5 * world, .producer = produce, .trace = &recorded.trace}, workspace,
      {current, side});
  recorded.calls = joined(log);
  return recorded;
}

}  // namespace tandem::test
