#include "fused/scatter/pushed.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/format.hpp"
#include "cost/schedules.hpp"

namespace tandem::fused {

using program::all_of;
using program::kCurrent;
using program::kSide;
using program::Operand;
using program::part_of;
using program::RootId;
using program::Space;
using trace::StepKind;

namespace {

// The workspace of a rank holds, for each chunk of its part, a stack of W partials of the chunk: those of the
// other ranks in rank order, and a last one of its own use; or all in rank order where that is the order of
// sums (ScatterProblem::batch_invariant). Behind the stacks is one word a rank and chunk.
// Words are zero before the barrier at the start, and one once their chunk is there.
//
// No barrier stands at the end. Peers write a rank's workspace only between that barrier and the words that
// the rank awaits, all of them in every call, also those of parts without rows. And every op touches a peer's
// workspace only behind a barrier of its own, or a wait for words of its own.
//
// In an all-reduce each owner pushes the sum of a chunk to all ranks too, beside the product of its next one.
// The workspace then has a place for the whole sum, and a second word a rank and chunk.

/// One of a part's chunks.
struct Chunk {
  int idx = 0;
  Shard units;  ///< of the scattered dim
};

class PushedScatter {
 public:
  PushedScatter(const ScatterProblem& problem, int rank)
      : problem_(problem), scatter_(problem, Algorithm::kPipelined, rank, 2) {}

  ScatterProgram build();

 private:
  [[nodiscard]] program::Builder& steps() { return scatter_.steps(); }
  [[nodiscard]] int rank() const { return scatter_.rank(); }
  [[nodiscard]] int world() const { return problem_.world; }
  [[nodiscard]] int most_chunks() const { return problem_.push_chunks; }
  [[nodiscard]] std::int64_t stack_bytes() const;
  [[nodiscard]] std::vector<Chunk> chunks_of(int part_of_rank) const;
  /// Words in which `source` tells of its chunk number `chunk`.
  [[nodiscard]] Operand word(int source, int chunk) const {
    return part_of(words_, 0, std::int64_t{source} * words_per_rank() + chunk, 1);
  }
  /// And of the chunk's sum.
  [[nodiscard]] Operand word_of_sum(int source, int chunk) const {
    return word(source, most_chunks() + chunk);
  }
  [[nodiscard]] int words_per_rank() const { return problem_.gives_all ? 2 * most_chunks() : most_chunks(); }
  /// Of the partial of `source` in the stacks of `owner`.
  [[nodiscard]] int place_of(int source, int owner) const {
    if (problem_.batch_invariant) return source;
    if (source == owner) return world() - 1;
    return source < owner ? source : source - 1;
  }
  /// The partial at `place` of the stack of a chunk of this size.
  RootId partial_at(std::string_view name, const Chunk& chunk, int place);

  void add_words();
  /// Absent where there are no units.
  Operand make_partial(int destination, const Shard& units, int slot);
  void push_whole(int destination);
  bool push_by_chunks(int destination, const Chunk* first_own);
  void push(int destination, const Chunk& chunk, const Operand& partial);
  void await_peers(const Chunk& chunk);
  void finish_by_product(const Chunk& chunk);
  void make_own(const Chunk& chunk);
  void finish_by_sum(const Chunk& chunk);
  void give_sum(const Chunk& chunk);
  void take_sums(int chunk);
  [[nodiscard]] Operand stack_of(std::string_view name, const Chunk& chunk, int num_partials);

  [[nodiscard]] bool ends_by_product() const { return own_products_end(problem_); }

  const ScatterProblem& problem_;
  ScatterBuilder scatter_;
  RootId words_ = program::kNone;
  RootId sums_ = program::kNone;  ///< all of out, where peers push it
};

std::int64_t PushedScatter::stack_bytes() const {
  return program::aligned_to_root(world() * problem_.chunk_units(most_chunks()) * scatter_.unit_bytes());
}

/// At least one, so that every rank awaits every other one.
std::vector<Chunk> PushedScatter::chunks_of(int part_of_rank) const {
  const Shard part = problem_.part_of(part_of_rank);
  std::vector<Chunk> chunks;
  std::int64_t done = 0;
  do {
    const auto idx = static_cast<int>(chunks.size());
    chunks.push_back({idx, problem_.chunk_of(part_of_rank, idx, most_chunks())});
    done += chunks.back().units.size;
  } while (done < part.size);
  return chunks;
}

RootId PushedScatter::partial_at(std::string_view name, const Chunk& chunk, int place) {
  const std::int64_t at = chunk.idx * stack_bytes() + place * chunk.units.size * scatter_.unit_bytes();
  return steps().at(Space::kWorkspace, at, fmt::format("{}, chunk {}", name, chunk.idx),
                    problem_.sizes_of(chunk.units.size), problem_.partials);
}

void PushedScatter::add_words() {
  const std::int64_t count = std::int64_t{world()} * words_per_rank();
  const std::int64_t at = most_chunks() * stack_bytes();
  steps().memory().workspace_bytes =
      at + program::aligned_to_root(count * static_cast<std::int64_t>(size_bytes(DType::kU32)));
  words_ = steps().at(Space::kWorkspace, at, "words", {count}, DType::kU32);
  steps().set_word_value(1);
  steps().set_chunks(count, words_per_rank());
  if (!problem_.gives_all) return;
  sums_ = steps().at(Space::kWorkspace, steps().memory().workspace_bytes, "sums",
                     problem_.sizes_of(problem_.total()), problem_.dtype);
  steps().memory().workspace_bytes += program::aligned_to_root(steps().root(sums_).most_bytes);
}

ScatterProgram PushedScatter::build() {
  add_words();
  if (problem_.batch_invariant) scatter_.add_sums(kCurrent, shard_stride(problem_.total(), world()));
  scatter_.copy_operands();
  steps().join(kCurrent, kSide);
  steps().reset(kSide, all_of(words_), 1);
  const std::vector<Chunk> own = chunks_of(rank());
  bool awaits_early = false;
  for (int step = 1; step < world(); ++step) {
    const int destination = (rank() + step) % world();
    const bool is_last = step + 1 == world();
    if (step == 1 || is_last) {
      awaits_early = push_by_chunks(destination, is_last && ends_by_product() ? &own.front() : nullptr);
    } else {
      push_whole(destination);
    }
  }
  // Where sums end, own products come before all of them, or, so that sums are given beside products, each
  // before the sum of the chunk before.
  const std::size_t num_early = ends_by_product() ? 0 : problem_.gives_all ? 1 : own.size();
  for (std::size_t i = 0; i < num_early; ++i) make_own(own[i]);
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (i > 0 || !awaits_early) await_peers(own[i]);
    // Behind that wait, for which the lane of products waits too, and beside the product that comes next.
    if (i > 0) give_sum(own[i - 1]);
    if (ends_by_product()) {
      finish_by_product(own[i]);
      continue;
    }
    if (i + num_early < own.size()) make_own(own[i + num_early]);
    finish_by_sum(own[i]);
  }
  give_sum(own.back());
  for (int chunk = own.back().idx; chunk < most_chunks(); ++chunk) take_sums(chunk);
  steps().join(kSide, kCurrent);
  return {scatter_.take(), scatter_.roots()};
}

Operand PushedScatter::make_partial(int destination, const Shard& units, int slot) {
  if (units.size == 0) return {};
  const std::int64_t first = units.offset - problem_.part_of(destination).offset;
  const Operand partial =
      all_of(steps().scratch(fmt::format("partial for {}, [{}:{}]", destination, first, first + units.size),
                             problem_.sizes_of(units.size), problem_.partials));
  scatter_.add_products(kCurrent, units, partial, {}, StepKind::kProduce, destination, slot);
  return partial;
}

/// One product, whose chunks are copied beside those that come behind it.
void PushedScatter::push_whole(int destination) {
  const Shard part = problem_.part_of(destination);
  const Operand partial = make_partial(destination, part, 0);
  steps().join(kCurrent, kSide);
  for (const Chunk& chunk : chunks_of(destination)) {
    const std::int64_t first = chunk.units.offset - part.offset;
    push(destination, chunk,
         partial.is_absent() ? partial : part_of(partial.root, 0, first, chunk.units.size));
  }
  if (part.size > 0) scatter_.keep(kSide, part, partial);
}

/// A product for each chunk: of the first part, so that the link begins early, and of the last one, so that
/// its first chunk is there when the own rows' turn comes. What their first chunk waits for comes before the
/// last push, which hides behind that chunk. All ranks have pushed all their first chunks before they wait,
/// so none waits for one that waits. `first_own`: null but in the last part, and where a sum ends that awaits
/// it behind the product. Returns whether it is awaited.
bool PushedScatter::push_by_chunks(int destination, const Chunk* first_own) {
  const std::vector<Chunk> chunks = chunks_of(destination);
  for (const Chunk& chunk : chunks) {
    const Operand partial = make_partial(destination, chunk.units, chunk.idx);
    const bool is_last = chunk.idx > 0 && chunk.idx + 1 == static_cast<int>(chunks.size());
    if (is_last && first_own != nullptr) await_peers(*first_own);
    steps().join(kCurrent, kSide);
    push(destination, chunk, partial);
    if (chunk.units.size > 0) scatter_.keep(kSide, chunk.units, partial);
  }
  return first_own != nullptr && chunks.size() > 1;
}

/// To the place of this rank among the others'; and the word behind it.
void PushedScatter::push(int destination, const Chunk& chunk, const Operand& partial) {
  if (chunk.units.size > 0) {
    const RootId there =
        partial_at(fmt::format("place at {}", destination), chunk, place_of(rank(), destination));
    steps().put(kSide, destination, partial, all_of(there), StepKind::kPut, chunk.idx);
  }
  steps().write_word(kSide, destination, word(rank(), chunk.idx));
}

/// The product lane goes on once the chunk's partials of all other ranks, and their sum if there are several,
/// are there.
void PushedScatter::await_peers(const Chunk& chunk) {
  for (int step = 1; step < world(); ++step) {
    const int source = (rank() - step + world()) % world();
    steps().await(kSide, source, word(source, chunk.idx), StepKind::kAwait, chunk.idx);
  }
  const int peers = world() - 1;
  if (peers > 1 && chunk.units.size > 0 && ends_by_product()) {
    steps().sum(kSide, stack_of("partials of peers", chunk, peers),
                all_of(partial_at("sum of peers", chunk, peers)), coll::ReduceOp::kSum);
  }
  steps().join(kSide, kCurrent);
}

Operand PushedScatter::stack_of(std::string_view name, const Chunk& chunk, int num_partials) {
  Dims sizes = problem_.sizes_of(chunk.units.size);
  sizes.insert(0, num_partials);
  return all_of(steps().at(Space::kWorkspace, chunk.idx * stack_bytes(),
                           fmt::format("{}, chunk {}", name, chunk.idx), sizes, problem_.partials));
}

void PushedScatter::finish_by_product(const Chunk& chunk) {
  if (chunk.units.size == 0) return;
  Operand addend;
  if (world() == 2) addend = all_of(partial_at("partial of peer", chunk, 0));
  if (world() > 2) addend = all_of(partial_at("sum of peers", chunk, world() - 1));
  scatter_.add_products(kCurrent, chunk.units, scatter_.own_out(chunk.units), addend, StepKind::kProduce,
                        rank());
}

/// The peers' partials travel beside these products.
void PushedScatter::make_own(const Chunk& chunk) {
  if (chunk.units.size == 0) return;
  const Operand own = all_of(partial_at("own partial", chunk, place_of(rank(), rank())));
  scatter_.add_products(kCurrent, chunk.units, own, {}, StepKind::kProduce, rank());
  scatter_.keep(kCurrent, chunk.units, own);
}

void PushedScatter::finish_by_sum(const Chunk& chunk) {
  if (chunk.units.size == 0) return;
  steps().sum(kCurrent, stack_of("partials", chunk, world()), scatter_.own_out(chunk.units),
              problem_.reduce_op, scatter_.own_bias());
}

/// To all other ranks, and then the sums of the chunk before from them. They were given as this one was, so
/// no rank waits for one that waits.
void PushedScatter::give_sum(const Chunk& chunk) {
  if (!problem_.gives_all) return;
  steps().join(kCurrent, kSide);
  const Shard& units = chunk.units;
  for (int step = 1; step < world(); ++step) {
    const int receiver = (rank() + step) % world();
    if (units.size > 0) {
      steps().put(kSide, receiver, scatter_.own_out(units), part_of(sums_, 0, units.offset, units.size),
                  StepKind::kGiveSum, chunk.idx);
    }
    steps().write_word(kSide, receiver, word_of_sum(rank(), chunk.idx));
  }
  if (chunk.idx > 0) take_sums(chunk.idx - 1);
}

/// From every other rank that has such a chunk.
void PushedScatter::take_sums(int chunk) {
  if (!problem_.gives_all) return;
  for (int step = 1; step < world(); ++step) {
    const int source = (rank() - step + world()) % world();
    const Shard units = problem_.chunk_of(source, chunk, most_chunks());
    if (units.size == 0 && chunk > 0) continue;
    steps().await(kSide, source, word_of_sum(source, chunk), StepKind::kTakeSum, chunk);
    if (units.size == 0) continue;
    steps().copy(kSide, part_of(sums_, 0, units.offset, units.size),
                 part_of(scatter_.roots().out, 0, units.offset, units.size));
  }
}

/// Of what the ranks have agreed on.
bool may_end_by_products(const ScatterProblem& problem, int chunks) {
  return chunks > 1 && problem.out_is_matrix() && problem.reduce_op == coll::ReduceOp::kSum &&
         !problem.batch_invariant;
}

}  // namespace

Support can_push(const ScatterProblem& problem) {
  if (Support sends = can_send_rows(problem); !sends) return sends;
  if (is_f8(problem.partials)) return Support::no("sums of f8 partials would saturate");
  return Support::yes();
}

bool own_products_end(const ScatterProblem& problem) {
  return may_end_by_products(problem, problem.push_chunks) && !problem.keeps_product && !problem.has_bias;
}

double predicted_push_us(const ScatterProblem& problem, int chunks, std::chrono::nanoseconds link,
                         const cost::GpuRates& gpu) {
  return cost::pushed_scatter_us({.world = problem.world,
                                  .rows = shard_stride(problem.total(), problem.world) * problem.unit_rows(),
                                  .n = problem.n(),
                                  .k = problem.planned_k(),
                                  .element_bytes = size_bytes(problem.factor()),
                                  .partial_bytes = size_bytes(problem.partials),
                                  .chunks = chunks,
                                  .ends_by_sums = !may_end_by_products(problem, chunks),
                                  .gives_all = problem.gives_all,
                                  .link = link},
                                 gpu);
}

int choose_push_chunks(const ScatterProblem& problem, std::chrono::nanoseconds link,
                       const cost::GpuRates& gpu) {
  int best = 1;
  double best_us = predicted_push_us(problem, best, link, gpu);
  for (const int chunks : {2, 4, 8}) {
    const double us = predicted_push_us(problem, chunks, link, gpu);
    if (us >= best_us) continue;
    best = chunks;
    best_us = us;
  }
  return best;
}

ScatterProgram build_pushed_scatter(const ScatterProblem& problem, int rank) {
  return PushedScatter(problem, rank).build();
}

}  // namespace tandem::fused
