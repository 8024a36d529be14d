#include <algorithm>

#include "base/format.hpp"
#include "fused/scatter/algorithms.hpp"
#include "fused/scatter/pushed.hpp"

namespace tandem::fused {

using program::all_of;
using program::kCurrent;
using program::kSide;
using program::Lane;
using program::part_of;
using program::RootId;
using program::Space;
using trace::StepKind;

namespace {

/// The all-to-all beside the products. See docs/design/schedules.md.
class PipelinedScatter {
 public:
  PipelinedScatter(const ScatterProblem& problem, int rank)
      : problem_(problem), scatter_(problem, Algorithm::kPipelined, rank, 2) {}

  ScatterProgram build();

 private:
  [[nodiscard]] program::Builder& steps() { return scatter_.steps(); }
  [[nodiscard]] int rank() const { return scatter_.rank(); }
  [[nodiscard]] int world() const { return problem_.world; }
  void add_roots();
  void exchange(int step);
  void produce_own();
  void sum();

  const ScatterProblem& problem_;
  ScatterBuilder scatter_;
  std::int64_t slot_bytes_ = 0;
  RootId stack_ = program::kNone;  ///< [W, units, unit]: all ranks' partials for this one
  RootId slots_[2] = {};           ///< where peers' partials for this rank begin
};

void PipelinedScatter::add_roots() {
  const std::int64_t units = shard_stride(problem_.total(), world());
  // Two of these make the workspace: for the partials of odd and of even steps.
  slot_bytes_ = program::aligned_to_root(units * scatter_.unit_bytes());
  steps().memory().workspace_bytes = std::max(2 * slot_bytes_, program::kRootAlignment);
  stack_ =
      steps().scratch("stack", {world(), scatter_.own().size, problem_.unit_elements()}, problem_.partials);
  for (int slot = 0; slot < 2; ++slot) {
    slots_[slot] = steps().at(Space::kWorkspace, slot * slot_bytes_, fmt::format("slot {}", slot),
                              {units, problem_.unit_elements()}, problem_.partials);
  }
  scatter_.add_sums(kCurrent, units);
  scatter_.add_sums(kSide, units);
}

ScatterProgram PipelinedScatter::build() {
  add_roots();
  scatter_.copy_operands();
  steps().join(kCurrent, kSide);
  for (int step = 1; step < world(); ++step) {
    if (step == 2) steps().nap(kCurrent);
    exchange(step);
  }
  if (world() == 2) steps().nap(kCurrent);  // there was no step 2 to start with one
  produce_own();
  steps().join(kSide, kCurrent);
  steps().barrier(kCurrent, 0);  // peers may use the workspace again
  sum();
  return {scatter_.take(), scatter_.roots()};
}

/// In step s every rank q produces for q+s and reads what r-s produced for it. Barriers tie the lanes of the
/// same parity together. Odd steps go to the side lane.
void PipelinedScatter::exchange(int step) {
  const Lane lane = step % 2 == 1 ? kSide : kCurrent;
  const int slot = step % 2 == 1 ? 0 : 1;
  const int channel = 1 - slot;
  const int destination = (rank() + step) % world();
  const int source = (rank() - step + world()) % world();
  const Shard part = problem_.part_of(destination);
  const RootId partial =
      steps().at(Space::kWorkspace, slot * slot_bytes_, fmt::format("partial for {}", destination),
                 problem_.sizes_of(part.size), problem_.partials);
  scatter_.make_partial(lane, part, all_of(partial), StepKind::kProduce, destination, slot);
  steps().barrier(lane, channel);  // the slot is filled on every rank
  steps().get(lane, source, all_of(slots_[slot]), part_of(stack_, 0, source, 1), StepKind::kGet, slot);
  if (step + 2 >= world()) return;  // the last barrier will do
  steps().barrier(lane, channel);   // everybody has read; step s+2 may overwrite it
}

void PipelinedScatter::produce_own() {
  const Shard own = scatter_.own();
  const std::int64_t at = steps().root(stack_).offset_bytes + rank() * own.size * scatter_.unit_bytes();
  const RootId partial =
      steps().at(Space::kScratch, at, "own partial", problem_.sizes_of(own.size), problem_.partials);
  scatter_.make_partial(kCurrent, own, all_of(partial), StepKind::kProduce, rank());
}

/// All ranks' partials, in rank order.
void PipelinedScatter::sum() {
  const std::int64_t units = scatter_.own().size;
  Dims sizes = problem_.scatters_last() ? Dims{problem_.rows(), units} : problem_.sizes_of(units);
  sizes.insert(0, world());
  const RootId stacked =
      steps().at(Space::kScratch, steps().root(stack_).offset_bytes, "partials", sizes, problem_.partials);
  steps().sum(kCurrent, all_of(stacked), all_of(scatter_.roots().out), problem_.reduce_op,
              scatter_.own_bias());
}

}  // namespace

ScatterProgram build_pipelined_scatter(const ScatterProblem& problem, int rank, const Device&) {
  if (problem.push_chunks > 0) return build_pushed_scatter(problem, rank);
  return PipelinedScatter(problem, rank).build();
}

}  // namespace tandem::fused
