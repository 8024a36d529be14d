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

/// What ranks make for each other in rounds, each of one chunk of every part; a scatter has one round. All
/// partials for a rank come together in its stack, and are summed there in rank order. See
/// docs/design/schedules.md.
class StackedScatter {
 protected:
  StackedScatter(const ScatterProblem& problem, int rank)
      : problem_(problem), scatter_(problem, Algorithm::kPipelined, rank, 2) {
    stack_at_ = steps().reserve_scratch(world() * chunk_of(rank, 0).size * scatter_.unit_bytes());
    add_stack(0);
  }

  [[nodiscard]] program::Builder& steps() { return scatter_.steps(); }
  [[nodiscard]] int rank() const { return scatter_.rank(); }
  [[nodiscard]] int world() const { return problem_.world; }
  [[nodiscard]] Shard chunk_of(int of_rank, int round) const {
    return problem_.chunk_of(of_rank, round, problem_.rounds);
  }
  [[nodiscard]] bool gives() const { return problem_.gives_all && world() > 1; }
  /// Of the largest chunk.
  [[nodiscard]] std::int64_t most_units() const { return chunk_of(0, 0).size; }

  void add_stack(int round);
  /// The own part's sums, where peers get them.
  void add_sums_root(Space space, std::int64_t offset_bytes);
  void produce_own(int round);
  void sum(int round);
  /// The sum of this chunk of `source`, in out.
  void take_sum(Lane lane, int source, int round);

  const ScatterProblem& problem_;
  ScatterBuilder scatter_;
  RootId stack_ = program::kNone;  ///< [W, units, unit]: all ranks' partials for this one, of a round
  RootId sums_ = program::kNone;   ///< of the own part, where peers get it

 private:
  std::int64_t stack_at_ = 0;  ///< in scratch memory
};

void StackedScatter::add_stack(int round) {
  stack_ = steps().at(Space::kScratch, stack_at_, "stack",
                      {world(), chunk_of(rank(), round).size, problem_.unit_elements()}, problem_.partials);
}

void StackedScatter::add_sums_root(Space space, std::int64_t offset_bytes) {
  const Dims largest = problem_.sizes_of(shard_stride(problem_.total(), world()));
  sums_ = steps().at(space, offset_bytes, "sums", largest, problem_.dtype);
}

void StackedScatter::produce_own(int round) {
  const Shard own = chunk_of(rank(), round);
  const std::int64_t at = stack_at_ + rank() * own.size * scatter_.unit_bytes();
  const RootId partial =
      steps().at(Space::kScratch, at, "own partial", problem_.sizes_of(own.size), problem_.partials);
  scatter_.make_partial(kCurrent, own, all_of(partial), StepKind::kProduce, rank());
}

/// All ranks' partials, in rank order.
void StackedScatter::sum(int round) {
  const Shard own = chunk_of(rank(), round);
  const std::int64_t units = own.size;
  Dims sizes = problem_.scatters_last() ? Dims{problem_.rows(), units} : problem_.sizes_of(units);
  sizes.insert(0, world());
  const RootId stacked = steps().at(Space::kScratch, stack_at_, "partials", sizes, problem_.partials);
  const program::Operand to =
      gives() ? part_of(sums_, 0, own.offset - scatter_.own().offset, units) : all_of(scatter_.roots().out);
  steps().sum(kCurrent, all_of(stacked), to, problem_.reduce_op, scatter_.own_bias());
}

void StackedScatter::take_sum(Lane lane, int source, int round) {
  const Shard part = chunk_of(source, round);
  if (part.size == 0) return;
  const program::Operand from = part_of(sums_, 0, part.offset - problem_.part_of(source).offset, part.size);
  const program::Operand to = part_of(scatter_.roots().out, 0, part.offset, part.size);
  if (source == rank()) {
    steps().copy(lane, from, to);
  } else {
    steps().get(lane, source, from, to, StepKind::kTakeSum, round);
  }
}

/// The all-to-all beside the products, behind barriers. A round's sums travel beside the products of the
/// next.
class MeetingScatter : private StackedScatter {
 public:
  MeetingScatter(const ScatterProblem& problem, int rank) : StackedScatter(problem, rank) { add_roots(); }
  ScatterProgram build();

 private:
  void add_roots();
  void exchange(int round, int step);
  void give(int round);

  std::int64_t slot_bytes_ = 0;
  RootId slots_[2] = {};  ///< where peers' partials for this rank begin
};

void MeetingScatter::add_roots() {
  // Two of these are in the workspace: for the partials of odd and of even steps.
  slot_bytes_ = program::aligned_to_root(most_units() * scatter_.unit_bytes());
  steps().memory().workspace_bytes = std::max(2 * slot_bytes_, program::kRootAlignment);
  for (int slot = 0; slot < 2; ++slot) {
    slots_[slot] = steps().at(Space::kWorkspace, slot * slot_bytes_, fmt::format("slot {}", slot),
                              {most_units(), problem_.unit_elements()}, problem_.partials);
  }
  scatter_.add_sums(kCurrent, most_units());
  scatter_.add_sums(kSide, most_units());
  if (!gives()) return;
  add_sums_root(Space::kWorkspace, steps().memory().workspace_bytes);
  steps().memory().workspace_bytes += program::aligned_to_root(steps().root(sums_).most_bytes);
}

ScatterProgram MeetingScatter::build() {
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
void MeetingScatter::exchange(int round, int step) {
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

/// The sums of a round, on the side lane, which has the fewer products left; behind the last round on both.
void MeetingScatter::give(int round) {
  const bool is_last = round + 1 == problem_.rounds;
  steps().join(kCurrent, kSide);
  steps().barrier(kSide, 1);  // all ranks have summed
  if (is_last && world() > 2) steps().join(kSide, kCurrent);
  for (int step = 1; step <= world(); ++step)
    take_sum(is_last && step % 2 == 0 ? kCurrent : kSide, (rank() + step) % world(), round);
}

/// The same without a barrier. The partials for all ranks, and the own sums, have each a place of their own in
/// the own slot of the inbox. A rank tells a peer when it has made a chunk for it, and the peer gets it. Words
/// count epochs, so nothing is reset, and no rank waits for one whose data it does not need: which counts
/// where ranks share cores, and each meeting takes a turn of all ranks. See symm/inbox.hpp.
class ToldScatter : private StackedScatter {
 public:
  ToldScatter(const ScatterProblem& problem, int rank) : StackedScatter(problem, rank) { add_roots(); }
  ScatterProgram build();

 private:
  [[nodiscard]] int words_per_rank() const { return (gives() ? 2 : 1) * problem_.rounds; }
  /// In which `source` tells of its chunk of round `idx`.
  [[nodiscard]] program::Operand word(int source, int idx) const {
    return part_of(words_, 0, std::int64_t{source} * words_per_rank() + idx, 1);
  }
  /// And of the chunk's sum.
  [[nodiscard]] int word_of_sum(int round) const { return problem_.rounds + round; }
  void tell(int receiver, int idx) {
    steps().write_word(kCurrent, receiver, word(rank(), idx), StepKind::kTell, idx);
  }
  void await(Lane lane, int source, int idx) {
    steps().await(lane, source, word(source, idx), StepKind::kAwait, idx);
  }
  RootId partial_for(int destination, int round);
  void add_roots();
  void exchange(int round, int step);
  void give(int round);

  RootId words_ = program::kNone;
};

void ToldScatter::add_roots() {
  const std::int64_t partials_bytes = problem_.total() * scatter_.unit_bytes();
  program::MemoryNeeds& needs = steps().memory();
  needs.inbox_bytes = partials_bytes;
  if (gives()) {
    add_sums_root(Space::kInbox, program::aligned_to_root(partials_bytes));
    needs.inbox_bytes = program::aligned_to_root(partials_bytes) + steps().root(sums_).most_bytes;
  }
  needs.inbox_words = std::int64_t{world()} * words_per_rank();
  words_ = steps().at(Space::kInboxWords, 0, "words", {needs.inbox_words}, DType::kU32);
  steps().set_chunks(needs.inbox_words, words_per_rank());
  scatter_.add_sums(kCurrent, most_units());
}

/// Units lie one behind the other, in the order of the scattered dim.
RootId ToldScatter::partial_for(int destination, int round) {
  const Shard part = chunk_of(destination, round);
  return steps().at(Space::kInbox, part.offset * scatter_.unit_bytes(),
                    fmt::format("partial for {}", destination), problem_.sizes_of(part.size),
                    problem_.partials);
}

ScatterProgram ToldScatter::build() {
  scatter_.copy_operands();
  steps().join(kCurrent, kSide);
  for (int round = 0; round < problem_.rounds; ++round) {
    if (round > 0) add_stack(round);
    for (int step = 1; step < world(); ++step) exchange(round, step);
    produce_own(round);
    steps().join(kSide, kCurrent);
    sum(round);
    if (gives()) give(round);
  }
  if (gives()) steps().join(kSide, kCurrent);
  return {scatter_.take(), scatter_.roots()};
}

/// Also of parts without units: every rank hears of every other one in every op.
void ToldScatter::exchange(int round, int step) {
  const int destination = (rank() + step) % world();
  const int source = (rank() - step + world()) % world();
  scatter_.make_partial(kCurrent, chunk_of(destination, round), all_of(partial_for(destination, round)),
                        StepKind::kProduce, destination, round);
  tell(destination, round);
  await(kSide, source, round);
  steps().get(kSide, source, all_of(partial_for(rank(), round)), part_of(stack_, 0, source, 1),
              StepKind::kGet, round);
}

/// The sums of a round, on the side lane beside the products of the next; behind the last round on both.
void ToldScatter::give(int round) {
  const bool is_last = round + 1 == problem_.rounds;
  for (int step = 1; step < world(); ++step) tell((rank() + step) % world(), word_of_sum(round));
  steps().join(kCurrent, kSide);
  for (int step = 1; step <= world(); ++step) {
    const Lane lane = is_last && step % 2 == 0 ? kCurrent : kSide;
    const int source = (rank() + step) % world();
    if (source != rank()) await(lane, source, word_of_sum(round));
    take_sum(lane, source, round);
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
  if (problem.push_chunks > 0) return build_pushed_scatter(problem, rank);
  if (problem.tells) return ToldScatter(problem, rank).build();
  return MeetingScatter(problem, rank).build();
}

}  // namespace tandem::fused
