#include "fused/scatter/told.hpp"

#include "base/format.hpp"

namespace tandem::fused {

using program::all_of;
using program::kCurrent;
using program::kSide;
using program::Lane;
using program::Operand;
using program::part_of;
using program::RootId;
using program::Space;
using trace::StepKind;

namespace {

// The own slot of the inbox has the partials for all ranks, units one behind the other in the order of the
// scattered dim, and in an all-reduce the own sums. Words count epochs, so nothing is reset, and no barrier
// stands anywhere. A rank writes into its slot only what its peers have read in the op before the last one:
// see symm/inbox.hpp. Memory: two slots of the whole product for each rank, in the type of partials, which
// is what `serial` takes too.
//
// An all-reduce runs in rounds where a link is to be hidden, each of one chunk of every part; the sums of a
// round travel beside the products of the next.

class ToldScatter {
 public:
  ToldScatter(const ScatterProblem& problem, Algorithm algorithm, int rank)
      : problem_(problem), scatter_(problem, algorithm, rank, has_side(problem) ? 2 : 1) {
    add_roots();
  }
  ScatterProgram build();

 private:
  /// Where a copy from a peer, or the link that it stands for, takes time without a core.
  static bool has_side(const ScatterProblem& problem) { return problem.has_link; }
  [[nodiscard]] program::Builder& steps() { return scatter_.steps(); }
  [[nodiscard]] int rank() const { return scatter_.rank(); }
  [[nodiscard]] int world() const { return problem_.world; }
  [[nodiscard]] int next(int step) const { return (rank() + step) % world(); }
  [[nodiscard]] Shard chunk_of(int of_rank, int round) const {
    return problem_.chunk_of(of_rank, round, problem_.rounds);
  }
  [[nodiscard]] int words_per_rank() const { return (problem_.gives_all ? 2 : 1) * problem_.rounds; }
  /// In which `source` tells of its chunk of round `idx`.
  [[nodiscard]] Operand word(int source, int idx) const {
    return part_of(words_, 0, std::int64_t{source} * words_per_rank() + idx, 1);
  }
  /// And of the chunk's sum.
  [[nodiscard]] int word_of_sum(int round) const { return problem_.rounds + round; }
  /// Whether one product of all rows tells of them while it is made: b is packed once then.
  [[nodiscard]] bool makes_at_once() const;
  RootId partials(std::string_view name, const Shard& units);

  void add_roots();
  void tell(int receiver, int idx) {
    steps().write_word(kCurrent, receiver, word(rank(), idx), StepKind::kTell, idx);
  }
  void await(Lane lane, int source, int idx) {
    steps().await(lane, source, word(source, idx), StepKind::kAwait, idx);
  }
  void make_all();
  void make(int owner, int round);
  void await_partials(int round);
  void sum(int round);
  void give(int round);

  const ScatterProblem& problem_;
  ScatterBuilder scatter_;
  RootId words_ = program::kNone;
  RootId sums_ = program::kNone;  ///< of the own part, where peers get it
};

void ToldScatter::add_roots() {
  const std::int64_t partials_bytes = problem_.total() * scatter_.unit_bytes();
  program::MemoryNeeds& needs = steps().memory();
  needs.inbox_bytes = partials_bytes;
  if (problem_.gives_all) {
    const Dims largest = problem_.sizes_of(shard_stride(problem_.total(), world()));
    const std::int64_t at = program::aligned_to_root(partials_bytes);
    sums_ = steps().at(Space::kInbox, at, "sums", largest, problem_.dtype);
    needs.inbox_bytes = at + steps().root(sums_).most_bytes;
  }
  needs.inbox_words = std::int64_t{world()} * words_per_rank();
  words_ = steps().at(Space::kInboxWords, 0, "words", {needs.inbox_words}, DType::kU32);
  steps().set_chunks(needs.inbox_words, words_per_rank());
  scatter_.add_sums(kCurrent, makes_at_once() ? problem_.total() : chunk_of(0, 0).size);
}

bool ToldScatter::makes_at_once() const {
  // Parts are shards of the rows then.
  const bool are_shards = problem_.unit_rows() == 1 || problem_.total() % world() == 0;
  return !problem_.is_scaled && problem_.num_products == 1 && problem_.rounds == 1 &&
         !problem_.scatters_last() && are_shards && problem_.rows() > 0 && problem_.n() > 0;
}

RootId ToldScatter::partials(std::string_view name, const Shard& units) {
  return steps().at(Space::kInbox, units.offset * scatter_.unit_bytes(), std::string(name),
                    problem_.sizes_of(units.size), problem_.partials);
}

ScatterProgram ToldScatter::build() {
  scatter_.copy_operands();
  if (has_side(problem_)) steps().join(kCurrent, kSide);
  for (int round = 0; round < problem_.rounds; ++round) {
    if (makes_at_once()) {
      make_all();
    } else {
      for (int step = 1; step <= world(); ++step) make(next(step), round);
    }
    await_partials(round);
    sum(round);
    if (problem_.gives_all) give(round);
  }
  if (problem_.gives_all && has_side(problem_)) steps().join(kSide, kCurrent);
  return {scatter_.take(), scatter_.roots()};
}

void ToldScatter::make_all() {
  const Shard all = {0, problem_.total()};
  program::Product product = scatter_.product(0, all);
  product.out = all_of(partials("partials", all));
  product.telling = program::Telling{.word = word(rank(), 0)};
  steps().product(kCurrent, product, StepKind::kProduce, -1, 0);
  scatter_.keep(kCurrent, all, product.out);
}

/// The partial of a rank's chunk. Also of parts without units: every rank hears of every other one in every
/// op.
void ToldScatter::make(int owner, int round) {
  const Shard units = chunk_of(owner, round);
  scatter_.make_partial(kCurrent, units, all_of(partials(fmt::format("partial for {}", owner), units)),
                        StepKind::kProduce, owner, round);
  if (owner != rank()) tell(owner, round);
}

/// Those for the own chunk. What crosses a link, in the order in which it is made, is not copied.
void ToldScatter::await_partials(int round) {
  if (has_side(problem_)) {
    steps().cross(kSide, word(0, round), problem_.rounds, {}, round);
    return steps().join(kSide, kCurrent);
  }
  for (int step = 1; step < world(); ++step) await(kCurrent, (rank() - step + world()) % world(), round);
}

/// All ranks' partials, in rank order.
void ToldScatter::sum(int round) {
  const Shard own = chunk_of(rank(), round);
  const RootId layer =
      steps().at(Space::kInbox, own.offset * scatter_.unit_bytes(), "own chunk",
                 problem_.scatters_last() ? Dims{problem_.rows(), own.size} : problem_.sizes_of(own.size),
                 problem_.partials);
  const Operand to = problem_.gives_all ? part_of(sums_, 0, own.offset - scatter_.own().offset, own.size)
                                        : all_of(scatter_.roots().out);
  steps().sum_ranks(kCurrent, all_of(layer), to, problem_.reduce_op, scatter_.own_bias());
}

/// The sums of a round: over a link, beside the products of the next round.
void ToldScatter::give(int round) {
  for (int step = 1; step < world(); ++step) tell(next(step), word_of_sum(round));
  const Lane lane = has_side(problem_) ? kSide : kCurrent;
  if (has_side(problem_)) {
    steps().join(kCurrent, kSide);
    steps().cross(kSide, word(0, word_of_sum(round)), problem_.rounds, {}, word_of_sum(round));
  }
  for (int step = 1; step <= world(); ++step) {
    const int source = next(step);
    if (source != rank() && !has_side(problem_)) await(lane, source, word_of_sum(round));
    const Shard part = chunk_of(source, round);
    if (part.size == 0) continue;
    const Operand from = part_of(sums_, 0, part.offset - problem_.part_of(source).offset, part.size);
    const Operand to = part_of(scatter_.roots().out, 0, part.offset, part.size);
    if (source == rank()) {
      steps().copy(lane, from, to);
    } else {
      steps().read(lane, source, from, to);
    }
  }
}

}  // namespace

Support can_tell(const ScatterProblem& problem) {
  if (problem.device.kind != DeviceKind::kCpu) return Support::no("this is no CPU");
  if (problem.world == 1) return Support::no("there are no peers");
  if (problem.num_hosts > 1) return Support::no("ranks are on several hosts");
  return Support::yes();
}

ScatterProgram build_told_scatter(const ScatterProblem& problem, Algorithm algorithm, int rank) {
  return ToldScatter(problem, algorithm, rank).build();
}

}  // namespace tandem::fused
