#include <algorithm>

#include "base/format.hpp"
#include "fused/scatter/algorithms.hpp"
#include "fused/scatter/pushed.hpp"
#include "fused/scatter/told.hpp"

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

/// The all-to-all beside the products. An all-reduce runs it in rounds, each of one chunk of every part; a
/// round's sums travel beside the products of the next. See docs/design/schedules.md.
class PipelinedScatter {
 public:
  PipelinedScatter(const ScatterProblem& problem, int rank)
      : problem_(problem), scatter_(problem, Algorithm::kPipelined, rank, 2) {}

  ScatterProgram build();

 private:
  [[nodiscard]] program::Builder& steps() { return scatter_.steps(); }
  [[nodiscard]] int rank() const { return scatter_.rank(); }
  [[nodiscard]] int world() const { return problem_.world; }
  [[nodiscard]] Shard chunk_of(int of_rank, int round) const {
    return problem_.chunk_of(of_rank, round, problem_.rounds);
  }
  [[nodiscard]] bool gives() const { return problem_.gives_all && world() > 1; }
  void add_roots();
  void add_stack(int round);
  void exchange(int round, int step);
  void produce_own(int round);
  void sum(int round);
  void give(int round);

  const ScatterProblem& problem_;
  ScatterBuilder scatter_;
  std::int64_t slot_bytes_ = 0;
  std::int64_t stack_at_ = 0;      ///< in scratch memory
  RootId stack_ = program::kNone;  ///< [W, units, unit]: all ranks' partials for this one, of a round
  RootId slots_[2] = {};           ///< where peers' partials for this rank begin
  RootId sums_ = program::kNone;   ///< of the own part, where peers get it
};

void PipelinedScatter::add_roots() {
  const std::int64_t units = chunk_of(0, 0).size;  // of the largest
  // Two of these are in the workspace: for the partials of odd and of even steps.
  slot_bytes_ = program::aligned_to_root(units * scatter_.unit_bytes());
  steps().memory().workspace_bytes = std::max(2 * slot_bytes_, program::kRootAlignment);
  stack_at_ = steps().reserve_scratch(world() * chunk_of(rank(), 0).size * scatter_.unit_bytes());
  add_stack(0);
  for (int slot = 0; slot < 2; ++slot) {
    slots_[slot] = steps().at(Space::kWorkspace, slot * slot_bytes_, fmt::format("slot {}", slot),
                              {units, problem_.unit_elements()}, problem_.partials);
  }
  scatter_.add_sums(kCurrent, units);
  scatter_.add_sums(kSide, units);
  if (!gives()) return;
  const Dims largest = problem_.sizes_of(shard_stride(problem_.total(), world()));
  sums_ = steps().at(Space::kWorkspace, steps().memory().workspace_bytes, "sums", largest, problem_.dtype);
  steps().memory().workspace_bytes += program::aligned_to_root(steps().root(sums_).most_bytes);
}

void PipelinedScatter::add_stack(int round) {
  stack_ = steps().at(Space::kScratch, stack_at_, "stack",
                      {world(), chunk_of(rank(), round).size, problem_.unit_elements()}, problem_.partials);
}

ScatterProgram PipelinedScatter::build() {
  add_roots();
  scatter_.copy_operands();
  steps().join(kCurrent, kSide);
  for (int round = 0; round < problem_.rounds; ++round) {
    if (round > 0) add_stack(round);
    for (int step = 1; step < world(); ++step) {
      if (step == 2 && round == 0) steps().nap(kCurrent);
      exchange(round, step);
    }
    if (world() == 2 && round == 0) steps().nap(kCurrent);  // there was no step 2 to start with one
    produce_own(round);
    steps().join(kSide, kCurrent);
    // Peers may use the slots again. Where sums are given, that is also behind the barrier in front of them,
    // but for the even steps of a next round, which do not wait for it.
    if (!gives() || (round + 1 < problem_.rounds && world() > 2)) steps().barrier(kCurrent, 0);
    sum(round);
    if (gives()) give(round);
  }
  if (gives()) {
    steps().join(kSide, kCurrent);
    steps().barrier(kCurrent, 0);  // and the sums
  }
  return {scatter_.take(), scatter_.roots()};
}

/// In step s every rank q produces for q+s and reads what r-s produced for it. Barriers tie the lanes of the
/// same parity together. Odd steps go to the side lane.
void PipelinedScatter::exchange(int round, int step) {
  const Lane lane = step % 2 == 1 ? kSide : kCurrent;
  const int slot = step % 2 == 1 ? 0 : 1;
  const int channel = 1 - slot;
  const int destination = (rank() + step) % world();
  const int source = (rank() - step + world()) % world();
  const Shard part = chunk_of(destination, round);
  const RootId partial =
      steps().at(Space::kWorkspace, slot * slot_bytes_, fmt::format("partial for {}", destination),
                 problem_.sizes_of(part.size), problem_.partials);
  scatter_.make_partial(lane, part, all_of(partial), StepKind::kProduce, destination, slot);
  steps().barrier(lane, channel);  // the slot is filled on every rank
  steps().get(lane, source, all_of(slots_[slot]), part_of(stack_, 0, source, 1), StepKind::kGet, slot);
  if (step + 2 >= world()) return;  // the last barrier will do
  steps().barrier(lane, channel);   // everybody has read; step s+2 may overwrite it
}

void PipelinedScatter::produce_own(int round) {
  const Shard own = chunk_of(rank(), round);
  const std::int64_t at = stack_at_ + rank() * own.size * scatter_.unit_bytes();
  const RootId partial =
      steps().at(Space::kScratch, at, "own partial", problem_.sizes_of(own.size), problem_.partials);
  scatter_.make_partial(kCurrent, own, all_of(partial), StepKind::kProduce, rank());
}

/// All ranks' partials, in rank order.
void PipelinedScatter::sum(int round) {
  const Shard own = chunk_of(rank(), round);
  const std::int64_t units = own.size;
  Dims sizes = problem_.scatters_last() ? Dims{problem_.rows(), units} : problem_.sizes_of(units);
  sizes.insert(0, world());
  const RootId stacked = steps().at(Space::kScratch, stack_at_, "partials", sizes, problem_.partials);
  const program::Operand to =
      gives() ? part_of(sums_, 0, own.offset - scatter_.own().offset, units) : all_of(scatter_.roots().out);
  steps().sum(kCurrent, all_of(stacked), to, problem_.reduce_op, scatter_.own_bias());
}

/// The sums of a round, on the side lane, which has the fewer products left; behind the last round on both.
void PipelinedScatter::give(int round) {
  const bool is_last = round + 1 == problem_.rounds;
  steps().join(kCurrent, kSide);
  steps().barrier(kSide, 1);  // all ranks have summed
  if (is_last && world() > 2) steps().join(kSide, kCurrent);
  for (int step = 1; step <= world(); ++step) {
    const Lane lane = is_last && step % 2 == 0 ? kCurrent : kSide;
    const int source = (rank() + step) % world();
    const Shard part = chunk_of(source, round);
    if (part.size == 0) continue;
    const program::Operand from = part_of(sums_, 0, part.offset - problem_.part_of(source).offset, part.size);
    const program::Operand to = part_of(scatter_.roots().out, 0, part.offset, part.size);
    if (source == rank()) {
      steps().copy(lane, from, to);
    } else {
      steps().get(lane, source, from, to, StepKind::kTakeSum, round);
    }
  }
}

}  // namespace

/// Every product packs b anew, which is about an eighth of the product of so many rows, and each
/// round has barriers of its own. The last round's sums show, so more rounds show less.
int choose_rounds(const ScatterProblem& problem) {
  constexpr std::int64_t kRoundRows = 256;
  constexpr std::int64_t kMostRounds = 4;
  if (problem.world == 1) return 1;
  const std::int64_t units = shard_stride(problem.total(), problem.world);
  return static_cast<int>(std::clamp<std::int64_t>(units / kRoundRows, 1, kMostRounds));
}

ScatterProgram build_pipelined_scatter(const ScatterProblem& problem, int rank, const Device&) {
  if (problem.num_hosts > 1) return build_scatter_across_hosts(problem, Algorithm::kPipelined, rank);
  if (problem.push_chunks > 0) return build_pushed_scatter(problem, rank);
  if (problem.pipelined_tells()) return build_told_scatter(problem, Algorithm::kPipelined, rank);
  return PipelinedScatter(problem, rank).build();
}

}  // namespace tandem::fused
