#include "program/verify.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::program {
namespace {

/// How far every lane of every rank has come, as far as one of them knows: a vector clock.
using Clock = std::vector<int>;

void merge(Clock& into, const Clock& other) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
}

/// A stretch of memory of one rank: bytes of scratch, workspace or inbox, or indices of one dimension of a
/// tensor of the caller's.
struct Region {
  int rank = 0;
  Space space = Space::kCaller;
  RootId root = kNone;  ///< of the caller's tensors, which are apart
  int dim = -1;         ///< of the range; -1: everything
  std::int64_t first = 0;
  std::int64_t last = 0;
};

bool overlap(const Region& x, const Region& y) {
  if (x.rank != y.rank || x.space != y.space || x.root != y.root) return false;
  if (x.dim < 0 || y.dim < 0 || x.dim != y.dim) return true;
  return x.first < y.last && y.first < x.last;
}

struct Access {
  Region region;
  bool writes = false;
  int thread = 0;
  int time = 0;  ///< of the thread's own clock
  const Step* step = nullptr;
};

/// One entry of a lane's queue. A join is two: its mark on one lane, the wait for it on another.
struct Entry {
  enum class Kind { kStep, kMark, kWait } kind = Kind::kStep;
  const Step* step = nullptr;
  int mark = -1;
  bool has_started = false;  ///< a product that sends has sent
};

class Simulation {
 public:
  explicit Simulation(std::span<const Program> ranks) : ranks_(ranks), lanes_(ranks.front().num_lanes) {
    const auto threads = ranks.size() * static_cast<std::size_t>(lanes_);
    queues_.resize(threads);
    clocks_.assign(threads, Clock(threads, 0));
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) enqueue(static_cast<int>(rank));
  }

  Result<void> run();

 private:
  [[nodiscard]] int thread_of(int rank, Lane lane) const { return rank * lanes_ + lane; }
  [[nodiscard]] int rank_of(int thread) const { return thread / lanes_; }
  [[nodiscard]] Lane lane_of(int thread) const { return static_cast<Lane>(thread % lanes_); }
  [[nodiscard]] const Program& program(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  std::deque<Entry>& queue(int thread) { return queues_[static_cast<std::size_t>(thread)]; }
  Clock& clock(int thread) { return clocks_[static_cast<std::size_t>(thread)]; }

  void enqueue(int rank);
  /// Takes the first entry of a lane if it can go on.
  Result<bool> advance(int thread);
  Result<bool> advance_product(int thread, Entry& entry);
  Result<bool> advance_together(int thread, const Step& step);
  [[nodiscard]] bool are_written(int rank, std::int64_t first, std::int64_t count) const;
  void read_words(int thread, std::int64_t first, std::int64_t count);
  void step_on(int thread) { ++clock(thread)[static_cast<std::size_t>(thread)]; }

  Result<void> touch(int thread, const Step& step);
  Result<void> access(int thread, const Step& step, const Region& region, bool writes);
  Result<void> use(int thread, const Step& step, const Operand& operand, bool writes);
  Result<void> use_at(int thread, const Step& step, int rank, const Operand& start, const Operand& like,
                      bool writes);
  Result<void> use_product(int thread, const Step& step, const Product& product);
  [[nodiscard]] Region region_of(int rank, const Operand& operand) const;
  [[nodiscard]] std::string text_of(int thread, const Step& step) const {
    return fmt::format("'{}' of rank {}", program(rank_of(thread)).to_string(step), rank_of(thread));
  }
  [[nodiscard]] Error stuck() const;

  std::span<const Program> ranks_;
  int lanes_;
  std::vector<std::deque<Entry>> queues_;  // by thread: a rank's lane
  std::vector<Clock> clocks_;
  std::map<int, Clock> marks_;
  std::map<std::pair<int, std::int64_t>, Clock> words_;  // by rank and word
  std::map<std::pair<int, int>, Clock> pieces_;          // by receiver and sender
  std::vector<Access> accesses_;
  int num_marks_ = 0;
};

void Simulation::enqueue(int rank) {
  for (const Step& step : program(rank).steps) {
    if (step.kind != StepKind::kJoin) {
      queue(thread_of(rank, step.lane)).push_back({.step = &step});
      continue;
    }
    const int mark = num_marks_++;
    queue(thread_of(rank, step.lane)).push_back({.kind = Entry::Kind::kMark, .step = &step, .mark = mark});
    queue(thread_of(rank, step.other)).push_back({.kind = Entry::Kind::kWait, .step = &step, .mark = mark});
  }
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
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    const Clock& end = clock(thread_of(rank, kCurrent));
    for (Lane lane = 1; lane < lanes_; ++lane) {
      const auto thread = static_cast<std::size_t>(thread_of(rank, lane));
      if (end[thread] < clocks_[thread][thread]) {
        return failf(ErrorCode::kInternal, "{}: lane {} of rank {} is not joined to the caller's in the end",
                     program(rank).name, lane_name(lane, lanes_), rank);
      }
    }
  }
  return {};
}

Result<bool> Simulation::advance(int thread) {
  Entry& entry = queue(thread).front();
  const Step& step = *entry.step;
  if (entry.kind == Entry::Kind::kMark) {
    marks_[entry.mark] = clock(thread);
  } else if (entry.kind == Entry::Kind::kWait) {
    const auto mark = marks_.find(entry.mark);
    if (mark == marks_.end()) return false;
    merge(clock(thread), mark->second);
  } else if (step.kind == StepKind::kBarrier || step.kind == StepKind::kAllGather ||
             step.kind == StepKind::kReduceScatter) {
    return advance_together(thread, step);
  } else if (step.kind == StepKind::kProduct) {
    return advance_product(thread, entry);
  } else if (step.kind == StepKind::kAwait) {
    if (!are_written(rank_of(thread), step.from.first, step.from.size)) return false;
    read_words(thread, step.from.first, step.from.size);
  } else {
    step_on(thread);
    TANDEM_TRY(touch(thread, step));
    if (step.kind == StepKind::kWriteWord) words_[{step.peer, step.to.first}] = clock(thread);
    // What was written before the reset is lost.
    if (step.kind == StepKind::kReset)
      std::erase_if(words_, [&](const auto& word) { return word.first.first == rank_of(thread); });
  }
  queue(thread).pop_front();
  return true;
}

Result<bool> Simulation::advance_product(int thread, Entry& entry) {
  const int rank = rank_of(thread);
  const int world = static_cast<int>(ranks_.size());
  const Program& own = program(rank);
  const Product& product = own.products[static_cast<std::size_t>(entry.step->product)];
  if (product.arrival) {
    const Arrival& arrival = *product.arrival;
    const std::int64_t num_words = numel(own.roots[static_cast<std::size_t>(arrival.words.root)].sizes);
    if (!entry.has_started) {
      step_on(thread);
      TANDEM_TRY(use(thread, *entry.step, arrival.own, false));
      for (int step = 1; arrival.sends && step <= arrival.piece_peers; ++step)
        pieces_[{(rank - step + world) % world, rank}] = clock(thread);
      entry.has_started = true;
    }
    for (int source = 0; source < world; ++source) {
      if (source == rank) continue;
      const bool in_pieces = (source - rank + world) % world <= arrival.piece_peers;
      const std::int64_t first = source * own.chunks_per_rank;
      const std::int64_t count = std::min(own.chunks_per_rank, num_words - first);
      if (in_pieces ? !pieces_.contains({rank, source}) : !are_written(rank, first, count)) return false;
    }
    for (int source = 0; source < world; ++source) {
      if (source == rank) continue;
      const std::int64_t first = source * own.chunks_per_rank;
      const auto pieces = pieces_.find({rank, source});
      if (pieces != pieces_.end()) merge(clock(thread), pieces->second);
      else read_words(thread, first, std::min(own.chunks_per_rank, num_words - first));
    }
  }
  step_on(thread);
  TANDEM_TRY(use_product(thread, *entry.step, product));
  queue(thread).pop_front();
  return true;
}

/// Barriers, and collectives, which are barriers with work between: all ranks stand before it, or nobody
/// passes.
Result<bool> Simulation::advance_together(int thread, const Step& step) {
  std::vector<int> all;
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    for (Lane lane = 0; lane < lanes_; ++lane) {
      const auto& entries = queues_[static_cast<std::size_t>(thread_of(rank, lane))];
      if (entries.empty() || entries.front().kind != Entry::Kind::kStep) continue;
      const Step& first = *entries.front().step;
      if (first.kind != step.kind || first.channel != step.channel) continue;
      if (lane != lane_of(thread)) {
        return failf(ErrorCode::kInternal, "{}: {} is met by another lane's '{}' of rank {}",
                     program(rank).name, text_of(thread, step), program(rank).to_string(first), rank);
      }
      all.push_back(thread_of(rank, lane));
    }
  }
  if (all.size() != ranks_.size()) return false;
  Clock met = clock(thread);
  for (const int one : all) merge(met, clock(one));
  for (const int one : all) {
    merge(clock(one), met);
    step_on(one);
    const Step& own = *queue(one).front().step;
    queue(one).pop_front();
    TANDEM_TRY(touch(one, own));
  }
  // A collective lets nobody go before all have read.
  if (step.kind == StepKind::kBarrier) return true;
  for (const int one : all) merge(met, clock(one));
  for (const int one : all) merge(clock(one), met);
  return true;
}

bool Simulation::are_written(int rank, std::int64_t first, std::int64_t count) const {
  for (std::int64_t word = first; word < first + count; ++word) {
    if (!words_.contains({rank, word})) return false;
  }
  return true;
}

void Simulation::read_words(int thread, std::int64_t first, std::int64_t count) {
  for (std::int64_t word = first; word < first + count; ++word)
    merge(clock(thread), words_.at({rank_of(thread), word}));
}

Region Simulation::region_of(int rank, const Operand& operand) const {
  const Root& root = program(rank).roots[static_cast<std::size_t>(operand.root)];
  Region region{.rank = rank, .space = root.space};
  if (root.space == Space::kCaller || root.space == Space::kInPlace) {
    region.root = operand.root;
    region.dim = operand.dim;
    region.first = operand.first;
    region.last = operand.first + operand.size;
    return region;
  }
  region.dim = 0;
  region.first = root.offset_bytes;
  region.last = root.offset_bytes + root.most_bytes;
  if (operand.dim != 0 || root.sizes.empty()) return region;
  const std::int64_t row_bytes =
      contiguous_strides(root.sizes)[0] * static_cast<std::int64_t>(size_bytes(root.dtype));
  region.first += operand.first * row_bytes;
  region.last = region.first + operand.size * row_bytes;
  return region;
}

Result<void> Simulation::access(int thread, const Step& step, const Region& region, bool writes) {
  const Access now{.region = region,
                   .writes = writes,
                   .thread = thread,
                   .time = clock(thread)[static_cast<std::size_t>(thread)],
                   .step = &step};
  for (const Access& before : accesses_) {
    if (!(before.writes || writes) || !overlap(before.region, region)) continue;
    if (clock(thread)[static_cast<std::size_t>(before.thread)] >= before.time) continue;
    return failf(ErrorCode::kInternal, "{}: {} and {} use the same memory, one writes it, and neither waits",
                 program(rank_of(thread)).name, text_of(before.thread, *before.step), text_of(thread, step));
  }
  accesses_.push_back(now);
  return {};
}

Result<void> Simulation::use(int thread, const Step& step, const Operand& operand, bool writes) {
  if (operand.is_absent()) return {};
  return access(thread, step, region_of(rank_of(thread), operand), writes);
}

/// Memory of `rank` that begins where `start` does and is as large as `like`.
Result<void> Simulation::use_at(int thread, const Step& step, int rank, const Operand& start,
                                const Operand& like, bool writes) {
  Region region = region_of(rank, start);
  const Region as_large = region_of(rank_of(thread), like);
  const bool knows_size = as_large.space != Space::kCaller && as_large.space != Space::kInPlace;
  if (knows_size && region.dim >= 0) region.last = region.first + (as_large.last - as_large.first);
  return access(thread, step, region, writes);
}

Result<void> Simulation::use_product(int thread, const Step& step, const Product& product) {
  for (const Operand* const read : {&product.a, &product.b, &product.bias, &product.a_scale,
                                    &product.b_scale, &product.result_scale, &product.addend})
    TANDEM_TRY(use(thread, step, *read, false));
  return use(thread, step, product.out, true);
}

Result<void> Simulation::touch(int thread, const Step& step) {
  switch (step.kind) {
    case StepKind::kGet:
      TANDEM_TRY(use_at(thread, step, step.peer, step.from, step.to, false));
      return use(thread, step, step.to, true);
    case StepKind::kPut:
      TANDEM_TRY(use(thread, step, step.from, false));
      return use_at(thread, step, step.peer, step.to, step.from, true);
    case StepKind::kWriteWord:
      return use_at(thread, step, step.peer, step.to, step.to, true);
    case StepKind::kBarrier:
      return {};
    default:
      TANDEM_TRY(use(thread, step, step.from, false));
      TANDEM_TRY(use(thread, step, step.bias, false));
      return use(thread, step, step.to, true);
  }
}

Error Simulation::stuck() const {
  std::string text;
  for (std::size_t thread = 0; thread < queues_.size(); ++thread) {
    if (queues_[thread].empty()) continue;
    text += fmt::format("{}{}", text.empty() ? "" : "; ",
                        text_of(static_cast<int>(thread), *queues_[thread].front().step));
  }
  return Error(ErrorCode::kInternal, fmt::format("{}: nobody ends what these wait for: {}",
                                                 ranks_.front().name, text));
}

}  // namespace

Result<void> verify(std::span<const Program> ranks) {
  if (ranks.empty()) return {};
  for (const Program& program : ranks) {
    if (program.num_lanes == ranks.front().num_lanes && program.num_lanes <= kMaxLanes) continue;
    return failf(ErrorCode::kInternal, "{}: rank {} has {} lanes and rank 0 {}, need the same, up to {}",
                 program.name, program.rank, program.num_lanes, ranks.front().num_lanes, kMaxLanes);
  }
  return Simulation(ranks).run();
}

}  // namespace tandem::program
