#include "program/verify.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tandem/base/shard.hpp>
#include <tuple>
#include <utility>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::program {
namespace {

bool is_inbox(Space space) {
  return space == Space::kInbox || space == Space::kInboxWords || space == Space::kInboxFlags;
}

std::int64_t row_bytes(const Root& root) {
  return contiguous_strides(root.sizes)[0] * static_cast<std::int64_t>(size_bytes(root.dtype));
}

/// A stretch of memory of one rank: bytes of scratch, workspace or inbox, or indices of one dimension of a
/// tensor of the caller's.
struct Region {
  int rank = 0;
  Space space = Space::kCaller;
  int slot = 0;         ///< of the inbox
  RootId root = kNone;  ///< of the caller's tensors, which are apart
  int dim = -1;         ///< of the range; -1: everything
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool is_exact = true;  ///< no smaller range would do

  [[nodiscard]] bool is_empty() const { return dim >= 0 && first >= last; }
};

bool overlap(const Region& x, const Region& y) {
  if (x.dim < 0 || y.dim < 0 || x.dim != y.dim) return true;
  return x.first < y.last && y.first < x.last;
}

struct Access {
  Region region;
  bool writes = false;
  int thread = 0;
  int time = 0;   ///< of the thread's own clock
  int round = 0;  ///< of the thread's program
  const Step* step = nullptr;
};

/// Everything that overlaps lies in one of these; see Region.
using Memory = std::tuple<int, Space, int, RootId>;
Memory memory_of(const Region& region) {
  return {region.rank, region.space, region.slot, region.root};
}

/// A product without b only sends pieces, and waits for those that come.
bool multiplies(const Product& product) {
  return !product.b.is_absent();
}

/// One entry of a lane's queue. A join is two: its mark on one lane, the wait for it on another.
struct Entry {
  enum class Kind { kStep, kMark, kWait, kEnd } kind = Kind::kStep;
  const Step* step = nullptr;
  int mark = -1;
  int round = 0;
  bool has_started = false;  ///< a product that sends has sent
};

class Simulation {
 public:
  Simulation(std::span<const Program> ranks, int num_rounds)
      : ranks_(ranks), lanes_(ranks.front().num_lanes), begins_(ranks.size(), 1), resets_(ranks.size()) {
    const auto threads = ranks.size() * static_cast<std::size_t>(lanes_);
    queues_.resize(threads);
    clocks_.assign(threads, Clock(threads, 0));
    early_ = clocks_;
    for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
      step_on(thread_of(rank, kCurrent));  // what the caller did before
      for (int round = 0; round < num_rounds; ++round) enqueue(rank, round);
    }
  }

  Result<void> run();

 private:
  [[nodiscard]] int thread_of(int rank, Lane lane) const { return rank * lanes_ + lane; }
  [[nodiscard]] int rank_of(int thread) const { return thread / lanes_; }
  [[nodiscard]] Lane lane_of(int thread) const { return static_cast<Lane>(thread % lanes_); }
  [[nodiscard]] int world() const { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] const Program& program(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  std::deque<Entry>& queue(int thread) { return queues_[static_cast<std::size_t>(thread)]; }
  Clock& clock(int thread) { return clocks_[static_cast<std::size_t>(thread)]; }
  /// Whether what `other` did at `time` is over for `thread`.
  [[nodiscard]] bool knows(int thread, int other, int time) const {
    return clocks_[static_cast<std::size_t>(thread)][static_cast<std::size_t>(other)] >= time;
  }
  [[nodiscard]] int now(int thread) { return clock(thread)[static_cast<std::size_t>(thread)]; }
  void step_on(int thread) { ++clock(thread)[static_cast<std::size_t>(thread)]; }

  void enqueue(int rank, int round);
  /// Takes the first entry of a lane if it can go on.
  Result<bool> advance(int thread);
  Result<bool> advance_product(int thread, Entry& entry, const Product& product);
  Result<bool> advance_together(int thread, const Step& step);
  Result<void> start_sending(int thread, const Entry& entry, const Product& product);
  Result<void> end(int thread);

  struct Moment {
    int thread = -1;  ///< -1: never
    int time = 0;     ///< of the thread's own clock
  };
  // Words and pieces. Those that count epochs have two slots and have reached e in round e; others are reset.
  struct Written {
    int round = -1;
    Clock clock;
  };
  [[nodiscard]] bool counts_epochs() const { return !ranks_.front().word_value.has_value(); }
  [[nodiscard]] int slot_of(int round) const { return counts_epochs() ? round % 2 : 0; }
  [[nodiscard]] bool is_of(const Written& written, int round) const {
    return !counts_epochs() || written.round >= round;
  }
  /// Words that are not reset are those of the call before: whoever looks at them need not wait.
  [[nodiscard]] bool are_of_call(int thread) const {
    const Moment& reset = resets_[static_cast<std::size_t>(rank_of(thread))];
    return counts_epochs() || (reset.thread >= 0 && knows(thread, reset.thread, reset.time));
  }
  /// What was written before a reset is lost.
  void forget_words(int thread) {
    const int rank = rank_of(thread);
    std::erase_if(words_, [&](const auto& one) { return std::get<0>(one.first) == rank; });
    std::erase_if(pieces_, [&](const auto& one) { return std::get<0>(one.first) == rank; });
    resets_[static_cast<std::size_t>(rank)] = {thread, now(thread)};
  }
  using Word = std::tuple<int, int, std::int64_t>;  // rank, slot, word in that rank's memory
  using Pieces = std::tuple<int, int, int>;         // receiver, slot, sender
  [[nodiscard]] bool have_come(int thread, int round, const Product& product) const;
  Result<bool> cross(int thread, const Entry& entry);
  Result<void> tell_all(int thread, const Entry& entry, const Operand& word);
  Result<void> meet_all(int thread, const Entry& entry, const Product& product);
  /// Which words an operand is, as all are counted that lie in its memory.
  [[nodiscard]] Shard words_in(int rank, const Operand& operand) const {
    constexpr std::int64_t kWordBytes = 4;
    return {root(rank, operand.root).offset_bytes / kWordBytes + operand.first, operand.size};
  }
  [[nodiscard]] bool are_written(int thread, int round, const Shard& words) const;
  void read_words(int thread, int round, const Shard& words);
  [[nodiscard]] Shard chunks_from(int source) const {
    const std::int64_t first = source * ranks_.front().chunks_per_rank;
    return {first, std::min(ranks_.front().chunks_per_rank, ranks_.front().num_chunks - first)};
  }
  /// Those of the product that it awaits of a rank of this host.
  [[nodiscard]] std::vector<std::int64_t> awaited_chunks(const Product& product, int source) const;
  /// In which the product of this rank sees those chunks.
  [[nodiscard]] Shard words_of(int rank, const Product& product, const Shard& chunks) const {
    return words_in(rank, part_of(product.arrival->words.root, 0, chunks.offset, chunks.size));
  }
  [[nodiscard]] bool awaits_words(int rank, int source, const Product& product) const {
    return multiplies(product) &&
           (product.arrival->scales_arrive() || !comes_in_pieces(rank, source, product));
  }
  [[nodiscard]] bool comes_in_pieces(int rank, int source, const Product& product) const {
    const int peers = product.arrival->piece_peers;
    return peers > 0 && (source - rank + world()) % world() <= peers;
  }

  Result<void> touch(int thread, const Step& step, int round);
  Result<void> access(int thread, const Step& step, int round, const Region& region, bool writes);
  Result<void> use(int thread, const Step& step, int round, const Operand& operand, bool writes);
  Result<void> use_at(int thread, const Step& step, int round, const Operand& start, const Operand& like,
                      bool writes);
  Result<void> use_channel(int thread, const Step& step);
  Result<void> use_product(int thread, const Step& step, int round, const Product& product);
  /// Reads them, from a's own part on, and writes out.
  Result<void> use_operands(int thread, const Step& step, int round, const Product& product,
                            const Operand& a);
  [[nodiscard]] bool is_written(const std::vector<Access>& all, const Region& region, int round) const;
  [[nodiscard]] const Root& root(int rank, RootId id) const {
    return program(rank).roots[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] Region region_of(int rank, int round, const Operand& operand) const;
  [[nodiscard]] std::string text_of(int thread, const Step& step) const {
    return fmt::format("'{}' of rank {}", program(rank_of(thread)).to_string(step), rank_of(thread));
  }
  template <class... Args>
  [[nodiscard]] tl::unexpected<Error> fault(fmt::format_string<Args...> format, Args&&... args) const {
    return failf(ErrorCode::kInternal, "{}: {}", ranks_.front().name,
                 fmt::format(format, std::forward<Args>(args)...));
  }
  [[nodiscard]] Error stuck() const;

  std::span<const Program> ranks_;
  int lanes_;
  std::vector<int> begins_;                // by rank: when its caller's lane began the call that it is in
  std::vector<Moment> resets_;             // by rank: when its words were reset last
  std::vector<std::deque<Entry>> queues_;  // by thread: a rank's lane
  std::vector<Clock> clocks_;
  std::vector<Clock> early_;  // by thread: its clock before the barrier of its last reset
  std::map<int, Clock> marks_;
  std::map<Word, Written> words_;
  std::map<Pieces, Written> pieces_;
  std::map<std::pair<int, int>, Access> channels_;  // by rank and channel: its last barrier
  std::map<Memory, std::vector<Access>> accesses_;
  int num_marks_ = 0;
};

void Simulation::enqueue(int rank, int round) {
  for (const Step& step : program(rank).steps) {
    if (step.kind != StepKind::kJoin) {
      queue(thread_of(rank, step.lane)).push_back({.step = &step, .round = round});
      continue;
    }
    const int mark = num_marks_++;
    queue(thread_of(rank, step.lane)).push_back({.kind = Entry::Kind::kMark, .step = &step, .mark = mark});
    queue(thread_of(rank, step.other)).push_back({.kind = Entry::Kind::kWait, .step = &step, .mark = mark});
  }
  queue(thread_of(rank, kCurrent)).push_back({.kind = Entry::Kind::kEnd});
}

Result<void> Simulation::run() {
  for (bool moved = true; moved;) {
    moved = false;
    for (int thread = 0; thread < static_cast<int>(queues_.size()); ++thread) {
      while (!queue(thread).empty()) {
        TANDEM_ASSIGN(const bool advanced, advance(thread));
        if (!advanced) break;
        moved = true;
      }
    }
  }
  for (const auto& queue : queues_) {
    if (!queue.empty()) return tl::unexpected(stuck());
  }
  return {};
}

Result<bool> Simulation::advance(int thread) {
  Entry& entry = queue(thread).front();
  if (entry.kind == Entry::Kind::kEnd) {
    TANDEM_TRY(end(thread));
  } else if (entry.kind == Entry::Kind::kMark) {
    marks_[entry.mark] = clock(thread);
  } else if (entry.kind == Entry::Kind::kWait) {
    const auto mark = marks_.find(entry.mark);
    if (mark == marks_.end()) return false;
    merge(clock(thread), mark->second);
  } else if (is_together(*entry.step)) {
    return advance_together(thread, *entry.step);
  } else if (entry.step->kind == StepKind::kProduct) {
    const Program& own = program(rank_of(thread));
    return advance_product(thread, entry, own.products[static_cast<std::size_t>(entry.step->product)]);
  } else if (entry.step->kind == StepKind::kAwait) {
    const Shard words = words_in(rank_of(thread), entry.step->from);
    if (!are_written(thread, entry.round, words)) return false;
    read_words(thread, entry.round, words);
  } else if (entry.step->kind == StepKind::kCross) {
    TANDEM_ASSIGN(const bool crossed, cross(thread, entry));
    if (!crossed) return false;
  } else {
    const Step& step = *entry.step;
    step_on(thread);
    TANDEM_TRY(touch(thread, step, entry.round));
    if (step.kind == StepKind::kWriteWord)
      words_[{step.peer, slot_of(entry.round), words_in(rank_of(thread), step.to).offset}] = {entry.round,
                                                                                              clock(thread)};
  }
  queue(thread).pop_front();
  return true;
}

/// Sends, waits for what comes, and multiplies it.
Result<bool> Simulation::advance_product(int thread, Entry& entry, const Product& product) {
  if (product.arrival) {
    if (!entry.has_started) TANDEM_TRY(start_sending(thread, entry, product));
    entry.has_started = true;
    if (!have_come(thread, entry.round, product)) return false;
  }
  step_on(thread);
  if (product.arrival) TANDEM_TRY(meet_all(thread, entry, product));
  const Clock later = clock(thread);
  if (product.arrival && product.arrival->begins_early) {
    // What it does with its own memory may come before the barrier of the reset.
    clock(thread) = early_[static_cast<std::size_t>(thread)];
    clock(thread)[static_cast<std::size_t>(thread)] = later[static_cast<std::size_t>(thread)];
  }
  TANDEM_TRY(use_product(thread, *entry.step, entry.round, product));
  clock(thread) = later;
  if (product.telling) TANDEM_TRY(tell_all(thread, entry, product.telling->word));
  queue(thread).pop_front();
  return true;
}

/// All other ranks have told; then the rank passes that on to itself.
Result<bool> Simulation::cross(int thread, const Entry& entry) {
  const int rank = rank_of(thread);
  const Step& step = *entry.step;
  const auto word_of = [&](int source) {
    Operand word = step.from;
    word.first += source * program(rank).chunks_per_rank;
    return words_in(rank, word);
  };
  for (int source = 0; source < world(); ++source) {
    if (source != rank && !are_written(thread, entry.round, word_of(source))) return false;
  }
  for (int source = 0; source < world(); ++source) {
    if (source != rank) read_words(thread, entry.round, word_of(source));
  }
  step_on(thread);
  for (int source = 0; source < world() && !step.to.is_absent(); ++source) {
    if (source == rank) continue;
    const Shard chunks = chunks_from(source);
    for (std::int64_t chunk = chunks.offset; chunk < chunks.offset + chunks.size; ++chunk) {
      const Operand word = part_of(step.to.root, 0, chunk, 1);
      TANDEM_TRY(use(thread, step, entry.round, word, true));
      words_[{rank, slot_of(entry.round), words_in(rank, word).offset}] = {entry.round, clock(thread)};
    }
  }
  return true;
}

/// A product's words at all other ranks. Each rank's rows were made before.
Result<void> Simulation::tell_all(int thread, const Entry& entry, const Operand& word) {
  const int rank = rank_of(thread);
  for (int owner = 0; owner < world(); ++owner) {
    if (owner == rank) continue;
    Region region = region_of(rank, entry.round, word);
    region.rank = owner;
    TANDEM_TRY(access(thread, *entry.step, entry.round, region, true));
    words_[{owner, slot_of(entry.round), words_in(rank, word).offset}] = {entry.round, clock(thread)};
  }
  return {};
}

/// Of n chunks over all rows of a root, by the shard rule.
Operand rows_of_chunks(const Program& program, RootId root, std::int64_t first, std::int64_t last) {
  const std::int64_t rows = program.roots[static_cast<std::size_t>(root)].sizes[0];
  const std::int64_t stride = shard_stride(rows, static_cast<int>(program.num_chunks));
  const std::int64_t begin = std::min(first * stride, rows);
  return part_of(root, 0, begin, std::min(last * stride, rows) - begin);
}

Result<void> Simulation::start_sending(int thread, const Entry& entry, const Product& product) {
  const int rank = rank_of(thread);
  const Arrival& arrival = *product.arrival;
  step_on(thread);
  TANDEM_TRY(use(thread, *entry.step, entry.round, arrival.own, false));
  if (!arrival.sends) return {};
  for (int step = arrival.own_in_pieces ? 0 : 1; step <= arrival.piece_peers; ++step) {
    const int peer = (rank - step + world()) % world();
    Region region = region_of(rank, entry.round,
                              rows_of_chunks(program(rank), product.a.root, arrival.first_own,
                                             arrival.first_own + arrival.num_own));
    region.rank = peer;
    TANDEM_TRY(access(thread, *entry.step, entry.round, region, true));
    if (arrival.flags != kNone) {
      const std::int64_t flags = root(rank, arrival.flags).sizes[0] / world();
      Region of_flags = region_of(rank, entry.round, part_of(arrival.flags, 0, rank * flags, flags));
      of_flags.rank = peer;
      TANDEM_TRY(access(thread, *entry.step, entry.round, of_flags, true));
    }
    pieces_[{peer, slot_of(entry.round), rank}] = {entry.round, clock(thread)};
  }
  return {};
}

std::vector<std::int64_t> Simulation::awaited_chunks(const Product& product, int source) const {
  const Arrival& arrival = *product.arrival;
  const Program& any = ranks_.front();
  const std::int64_t first = std::max<std::int64_t>(arrival.words.first, 0);
  const std::int64_t size = arrival.words.dim < 0 ? any.num_chunks : arrival.words.size;
  std::vector<std::int64_t> chunks;
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t chunk = first + i;
    if (chunk / any.chunks_per_rank % world() != source) continue;
    const bool is_own = i >= arrival.first_own && i < arrival.first_own + arrival.num_own;
    if (!is_own || arrival.own_in_pieces) chunks.push_back(chunk);
  }
  return chunks;
}

bool Simulation::have_come(int thread, int round, const Product& product) const {
  const int rank = rank_of(thread);
  if (!are_of_call(thread)) return true;
  for (int source = 0; source < world(); ++source) {
    for (const std::int64_t chunk : awaited_chunks(product, source)) {
      const Shard word = words_of(rank, product, {chunk, 1});
      if (awaits_words(rank, source, product) && !are_written(thread, round, word)) return false;
    }
    const bool is_own = source == rank && !product.arrival->own_in_pieces;
    if (is_own || !comes_in_pieces(rank, source, product)) continue;
    const auto pieces = pieces_.find({rank, slot_of(round), source});
    if (pieces == pieces_.end() || !is_of(pieces->second, round)) return false;
  }
  return true;
}

/// Each chunk is read as soon as its own word has come.
Result<void> Simulation::meet_all(int thread, const Entry& entry, const Product& product) {
  const int rank = rank_of(thread);
  const Clock before = clock(thread);
  Clock behind = before;
  const auto sent = [&](const auto& words, const auto& word) {
    return are_of_call(thread) ? words.at(word).clock : before;
  };
  int of_rank = rank;  // in whose memory chunks are read
  const auto read = [&](RootId root, const Clock& known, std::int64_t first,
                        std::int64_t last) -> Result<void> {
    merge(clock(thread), known);
    merge(behind, known);
    if (multiplies(product)) {
      Region region = region_of(rank, entry.round, rows_of_chunks(program(rank), root, first, last));
      region.rank = of_rank;
      TANDEM_TRY(access(thread, *entry.step, entry.round, region, false));
    }
    clock(thread) = before;
    return {};
  };
  for (int source = 0; source < world(); ++source) {
    const std::vector<std::int64_t> awaited = awaited_chunks(product, source);
    if (awaited.empty()) continue;
    if (product.arrival->held) of_rank = source;
    const bool in_pieces = comes_in_pieces(rank, source, product);
    if (in_pieces) {
      const Shard chunks = chunks_from(source);
      TANDEM_TRY(read(product.a.root, sent(pieces_, Pieces{rank, slot_of(entry.round), source}),
                      chunks.offset, chunks.offset + chunks.size));
    }
    for (const std::int64_t chunk : awaited) {
      if (!awaits_words(rank, source, product)) break;
      const std::int64_t word = words_of(rank, product, {chunk, 1}).offset;
      const auto& known = sent(words_, Word{rank, slot_of(entry.round), word});
      if (!in_pieces) TANDEM_TRY(read(product.a.root, known, chunk, chunk + 1));
      if (product.arrival->scales_arrive()) TANDEM_TRY(read(product.a_scale.root, known, chunk, chunk + 1));
    }
  }
  clock(thread) = behind;
  return {};
}

/// Barriers, resets, which write before one, and collectives, which are barriers with work between: all ranks
/// stand before it, or nobody passes.
Result<bool> Simulation::advance_together(int thread, const Step& step) {
  std::vector<int> all;
  for (int rank = 0; rank < world(); ++rank) {
    const int other = thread_of(rank, lane_of(thread));
    if (queue(other).empty() || queue(other).front().kind != Entry::Kind::kStep) return false;
    const Step& theirs = *queue(other).front().step;
    if (theirs.kind != step.kind || theirs.channel != step.channel) return false;
    all.push_back(other);
  }
  if (step.kind == StepKind::kReset) {
    for (const int one : all) {
      const Entry& entry = queue(one).front();
      step_on(one);
      TANDEM_TRY(use(one, *entry.step, entry.round, entry.step->to, true));
      forget_words(one);
      early_[static_cast<std::size_t>(one)] = clock(one);
    }
  }
  Clock met = clock(thread);
  for (const int one : all) merge(met, clock(one));
  for (const int one : all) {
    const Entry entry = queue(one).front();
    queue(one).pop_front();
    TANDEM_TRY(use_channel(one, *entry.step));
    merge(clock(one), met);
    step_on(one);
    TANDEM_TRY(touch(one, *entry.step, entry.round));
  }
  // A collective lets nobody go before all have read.
  if (step.kind == StepKind::kBarrier || step.kind == StepKind::kReset) return true;
  for (const int one : all) merge(met, clock(one));
  for (const int one : all) merge(clock(one), met);
  return true;
}

/// Whatever comes behind the call on the caller's lane may write all of this rank's memory but the inbox.
Result<void> Simulation::end(int thread) {
  const int rank = rank_of(thread);
  for (auto& [memory, all] : accesses_) {
    if (std::get<0>(memory) != rank || is_inbox(std::get<1>(memory))) continue;
    for (const Access& before : all) {
      if (knows(thread, before.thread, before.time)) continue;
      return fault("the call ends on rank {} while {} may still use its memory", rank,
                   text_of(before.thread, *before.step));
    }
    all.clear();
  }
  step_on(thread);
  begins_[static_cast<std::size_t>(rank)] = now(thread);
  return {};
}

bool Simulation::are_written(int thread, int round, const Shard& words) const {
  if (!are_of_call(thread)) return true;
  for (std::int64_t word = words.offset; word < words.offset + words.size; ++word) {
    const auto written = words_.find({rank_of(thread), slot_of(round), word});
    if (written == words_.end() || !is_of(written->second, round)) return false;
  }
  return true;
}

void Simulation::read_words(int thread, int round, const Shard& words) {
  if (!are_of_call(thread)) return;
  for (std::int64_t word = words.offset; word < words.offset + words.size; ++word)
    merge(clock(thread), words_.at({rank_of(thread), slot_of(round), word}).clock);
}

Region Simulation::region_of(int rank, int round, const Operand& operand) const {
  const Root& of = root(rank, operand.root);
  Region region{.rank = rank, .space = of.space};
  if (of.space == Space::kInPlace) return region;
  if (of.space == Space::kCaller) {
    region.root = operand.root;
    region.dim = operand.dim;
    region.first = operand.first;
    region.last = operand.first + operand.size;
    return region;
  }
  if (is_inbox(of.space)) region.slot = round % 2;
  region.dim = 0;
  region.first = of.offset_bytes;
  region.last = of.offset_bytes + of.most_bytes;
  if (operand.dim != 0 || of.sizes.empty()) {
    region.is_exact = operand.dim < 0 && !of.sizes.empty();
    return region;
  }
  region.first += operand.first * row_bytes(of);
  region.last = region.first + operand.size * row_bytes(of);
  return region;
}

/// Whether this round's program has written all of it before.
bool Simulation::is_written(const std::vector<Access>& all, const Region& region, int round) const {
  std::vector<std::pair<std::int64_t, std::int64_t>> written;
  for (const Access& before : all) {
    if (before.writes && before.round == round) written.emplace_back(before.region.first, before.region.last);
  }
  std::sort(written.begin(), written.end());
  std::int64_t reached = region.first;
  for (const auto& [first, last] : written) {
    if (first <= reached) reached = std::max(reached, last);
  }
  return reached >= region.last;
}

Result<void> Simulation::access(int thread, const Step& step, int round, const Region& region, bool writes) {
  if (region.is_empty()) return {};
  const int caller = thread_of(region.rank, kCurrent);
  if (!is_inbox(region.space) && !knows(thread, caller, begins_[static_cast<std::size_t>(region.rank)])) {
    return fault("{} does not wait for what rank {}'s caller did before the call", text_of(thread, step),
                 region.rank);
  }
  std::vector<Access>& all = accesses_[memory_of(region)];
  for (const Access& before : all) {
    if (!(before.writes || writes) || !overlap(before.region, region)) continue;
    if (knows(thread, before.thread, before.time)) continue;
    return fault("{} and {} use the same memory, one writes it, and neither waits",
                 text_of(before.thread, *before.step), text_of(thread, step));
  }
  if (!writes && !is_callers(region.space) && region.is_exact && !is_written(all, region, round))
    return fault("{} reads memory of rank {} that nobody has written", text_of(thread, step), region.rank);
  all.push_back({region, writes, thread, now(thread), round, &step});
  return {};
}

Result<void> Simulation::use(int thread, const Step& step, int round, const Operand& operand, bool writes) {
  if (operand.is_absent()) return {};
  return access(thread, step, round, region_of(rank_of(thread), round, operand), writes);
}

/// Memory of the step's peer that begins where `start` does on this rank and is as large as `like`.
Result<void> Simulation::use_at(int thread, const Step& step, int round, const Operand& start,
                                const Operand& like, bool writes) {
  const int rank = rank_of(thread);
  const Root& of = root(rank, start.root);
  Region region = region_of(rank, round, start);
  region.rank = step.peer;
  if (is_callers(region.space)) return access(thread, step, round, region, writes);
  const Region as_large = region_of(rank, round, like);
  if (!is_callers(as_large.space)) {
    region.last = region.first + (as_large.last - as_large.first);
  } else if (as_large.dim == 0 && !of.sizes.empty()) {
    region.last = region.first + like.size * row_bytes(of);
  } else {
    region.is_exact = false;
  }
  const std::int64_t reserved = program(rank).memory.bytes_of(region.space);
  if (region.last > reserved)
    return fault("{} ends at byte {}, and {} are reserved", text_of(thread, step), region.last, reserved);
  return access(thread, step, round, region, writes);
}

/// Barriers of one channel come one after the other.
Result<void> Simulation::use_channel(int thread, const Step& step) {
  Access& last = channels_[{rank_of(thread), step.channel}];
  if (last.step != nullptr && !knows(thread, last.thread, last.time)) {
    return fault("{} and {} use the same channel, and neither waits", text_of(last.thread, *last.step),
                 text_of(thread, step));
  }
  last.thread = thread;
  last.time = now(thread) + 1;  // it is over one step on
  last.step = &step;
  return {};
}

Result<void> Simulation::use_product(int thread, const Step& step, int round, const Product& product) {
  if (!multiplies(product)) return {};
  return use_operands(thread, step, round, product, product.arrival ? product.arrival->own : product.a);
}

Result<void> Simulation::use_operands(int thread, const Step& step, int round, const Product& product,
                                      const Operand& a) {
  TANDEM_TRY(use(thread, step, round, a, false));
  const bool scales_arrive = product.arrival && product.arrival->scales_arrive();
  const Operand& a_scale = scales_arrive ? product.arrival->own_scale : product.a_scale;
  for (const Operand* const read :
       {&product.b, &product.bias, &a_scale, &product.b_scale, &product.result_scale, &product.addend})
    TANDEM_TRY(use(thread, step, round, *read, false));
  if (product.accumulate) TANDEM_TRY(use(thread, step, round, product.out, false));
  return use(thread, step, round, product.out, true);
}

Result<void> Simulation::touch(int thread, const Step& step, int round) {
  switch (step.kind) {
    case StepKind::kGet:
    case StepKind::kRead:
      TANDEM_TRY(use_at(thread, step, round, step.from, step.to, false));
      return use(thread, step, round, step.to, true);
    case StepKind::kPut:
      TANDEM_TRY(use(thread, step, round, step.from, false));
      return use_at(thread, step, round, step.to, step.to, true);
    case StepKind::kWriteWord:
      return use_at(thread, step, round, step.to, step.to, true);
    case StepKind::kProductScatter: {
      const Program& own = program(rank_of(thread));
      const Product& product = own.products[static_cast<std::size_t>(step.product)];
      TANDEM_TRY(use(thread, step, round, product.departure->kept, true));
      TANDEM_TRY(use(thread, step, round, product.departure->bias, false));
      return use_operands(thread, step, round, product, product.a);
    }
    case StepKind::kSumRanks: {
      Region region = region_of(rank_of(thread), round, step.from);
      for (region.rank = 0; region.rank < world(); ++region.rank)
        TANDEM_TRY(access(thread, step, round, region, false));
      TANDEM_TRY(use(thread, step, round, step.bias, false));
      return use(thread, step, round, step.to, true);
    }
    case StepKind::kBarrier:
    case StepKind::kCross:  // see cross()
    case StepKind::kReset:  // before it: advance_together()
      return {};
    default:
      TANDEM_TRY(use(thread, step, round, step.from, false));
      TANDEM_TRY(use(thread, step, round, step.bias, false));
      TANDEM_TRY(use(thread, step, round, step.scale, true));
      return use(thread, step, round, step.to, true);
  }
}

Error Simulation::stuck() const {
  std::string text;
  for (std::size_t thread = 0; thread < queues_.size(); ++thread) {
    if (queues_[thread].empty() || queues_[thread].front().step == nullptr) continue;
    text += fmt::format("{}{}", text.empty() ? "" : "; ",
                        text_of(static_cast<int>(thread), *queues_[thread].front().step));
  }
  return Error(ErrorCode::kInternal,
               fmt::format("{}: nobody ends what these wait for: {}", ranks_.front().name, text));
}

}  // namespace

void merge(Clock& into, const Clock& other) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
}

Result<void> verify(std::span<const Program> ranks) {
  // Three calls in a row: the third uses the first one's slot of the inbox.
  constexpr int kInboxRounds = 3;
  TANDEM_TRY(check_form(ranks));
  if (ranks.empty()) return {};
  return Simulation(ranks, ranks.front().memory.uses_inbox() ? kInboxRounds : 1).run();
}

}  // namespace tandem::program
