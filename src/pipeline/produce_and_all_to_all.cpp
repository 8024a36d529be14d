#include <algorithm>
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

/// Two of these make the workspace: for the partials of odd and of even steps.
std::int64_t slot_bytes(const TensorView& stack, std::int64_t total) {
  const std::int64_t num_bytes =
      shard_stride(total, static_cast<int>(stack.size(0))) * row_bytes(stack.select(0, 0));
  return aligned(num_bytes, kSubBufferAlignment);
}

/// The fused op has checked the user's arguments; what fails here is its own mistake.
Result<void> check(const ProduceAndAllToAll& work, const symm::Handle& workspace) {
  const int world = workspace.world_size();
  const TensorView& stack = work.stack;
  if (stack.dim() < 2 || stack.size(0) != world || !stack.is_contiguous() ||
      stack.size(1) != shard_of(work.total, world, workspace.rank()).size) {
    return failf(
        ErrorCode::kInternal,
        "produce_and_all_to_all: got a stack {} on rank {} of {} with {} over all ranks, need contiguous "
        "[{}, {}, ...]",
        to_string(stack), workspace.rank(), world, work.total, world,
        shard_of(work.total, world, workspace.rank()).size);
  }
  const std::int64_t needed = scatter_workspace_bytes(stack, work.total);
  if (workspace.buffer_size_bytes() < needed) {
    return failf(ErrorCode::kInternal, "produce_and_all_to_all: got a workspace of {} bytes, need {}",
                 workspace.buffer_size_bytes(), needed);
  }
  return {};
}

/// The walk itself.
class Scatter {
 public:
  Scatter(const ProduceAndAllToAll& work, symm::Handle& workspace, Lanes lanes)
      : work_(work), workspace_(workspace), lanes_(lanes) {}

  Result<void> run();

 private:
  [[nodiscard]] int world() const { return workspace_.world_size(); }
  [[nodiscard]] int rank() const { return workspace_.rank(); }
  Result<void> exchange(int step);
  Result<void> produce(const Lane& lane, int destination, int slot);
  Result<void> get(const Lane& lane, int source, int slot);
  /// First element of a slot.
  [[nodiscard]] std::int64_t offset_of(int slot) const {
    return slot * slot_bytes(work_.stack, work_.total) / size_bytes(work_.stack.dtype);
  }

  const ProduceAndAllToAll& work_;
  symm::Handle& workspace_;
  Lanes lanes_;
};

Result<void> Scatter::run() {
  const Lane& current = lanes_.current();
  TANDEM_TRY(lanes_.join(current));
  for (int step = 1; step < world(); ++step) {
    if (step == 2 && work_.nudge) TANDEM_TRY(lanes_.nap());
    TANDEM_TRY(exchange(step));
  }
  if (world() == 2 && work_.nudge) TANDEM_TRY(lanes_.nap());  // there was no step 2 to start with one

  lanes_.note({.kind = StepKind::kProduce, .stream = current.role, .peer = rank()});
  TANDEM_TRY(work_.producer(rank(), work_.stack.select(0, rank()), current.stream));
  TANDEM_TRY(lanes_.join(lanes_.side()));
  return lanes_.barrier(current, 0);  // peers may use the workspace again
}

/// In step s every rank q produces for q+s and reads what r-s produced for it. Streams of the same parity
/// meet.
Result<void> Scatter::exchange(int step) {
  const Lane& lane = lanes_.of_step(step);
  const int slot = step % 2 == 1 ? 0 : 1;
  const int channel = 1 - slot;
  TANDEM_TRY(produce(lane, (rank() + step) % world(), slot));
  TANDEM_TRY(lanes_.barrier(lane, channel));  // the slot is filled on every rank
  TANDEM_TRY(get(lane, (rank() - step + world()) % world(), slot));
  if (step + 2 >= world()) return {};    // the last barrier will do
  return lanes_.barrier(lane, channel);  // everybody has read; step s+2 may overwrite it
}

Result<void> Scatter::produce(const Lane& lane, int destination, int slot) {
  lanes_.note({.kind = StepKind::kProduce, .stream = lane.role, .peer = destination, .slot = slot});
  Dims sizes = work_.stack.sizes;
  sizes.erase(0);
  sizes[0] = shard_of(work_.total, world(), destination).size;
  TANDEM_ASSIGN(const TensorView to,
                workspace_.get_buffer(rank(), sizes, work_.stack.dtype, offset_of(slot)));
  return work_.producer(destination, to, lane.stream);
}

Result<void> Scatter::get(const Lane& lane, int source, int slot) {
  lanes_.note({.kind = StepKind::kGet, .stream = lane.role, .peer = source, .slot = slot});
  return workspace_.get(lane.stream, work_.stack.select(0, source), source, offset_of(slot));
}

}  // namespace

std::int64_t scatter_workspace_bytes(const TensorView& stack, std::int64_t total) {
  return std::max(2 * slot_bytes(stack, total), kSubBufferAlignment);
}

Result<void> produce_and_all_to_all(const ProduceAndAllToAll& work, symm::Handle& workspace,
                                    const StreamPair& streams) {
  TANDEM_TRY(check(work, workspace));
  Lanes lanes(streams, workspace, symm::kScatterChannel, work.trace);
  return lanes.finish(Scatter(work, workspace, lanes).run());
}

}  // namespace tandem::pipeline
