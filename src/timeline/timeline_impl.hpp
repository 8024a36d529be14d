#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tandem/timeline/timeline.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/stamps.hpp"

namespace tandem {

namespace timeline {

/// A channel of a pad, as NamedStep::channel.
[[nodiscard]] constexpr std::int32_t meeting_of(int pad_channel) {
  return pad_channel + 1;
}

/// Whose the chunks are that a product waits for. Its chunk i is number first + i of all; each rank of
/// the group has per_rank.
struct ProductChunks {
  std::int64_t per_rank = 1;
  std::int64_t first = 0;
};

/// A step of a program, as far as it is the same in every call.
struct NamedStep {
  std::string text;      ///< "bk: get published a of rank 1 -> gathered a"
  std::string notation;  ///< "bk:get1"; empty if it has none
  std::string stream;    ///< "bk"
  trace::Event event;    ///< category, peer, chunk and the like
  /// meeting_of() steps that all ranks take together: those of one channel meet in their order.
  std::int32_t channel = -1;
  ProductChunks chunks = {};  ///< of products that wait for them
};

/// The steps of a program.
struct StepList {
  std::string schedule;  ///< in short notation
  std::vector<NamedStep> steps;
};

/// A step that is noted: a NamedStep whose texts have numbers.
struct Pattern {
  trace::Event event;
  std::int32_t channel = -1;
  ProductChunks chunks = {};
};
struct Patterns {
  std::shared_ptr<const StepList> of;
  trace::TextId schedule = trace::kNoText;
  std::vector<Pattern> steps;
};

}  // namespace timeline

/// What is noted of the calls in progress and of those before. Every stream that a call uses has a row of
/// stamps: the end of a step is the begin of the next one on its stream.
class Timeline::Impl {
 public:
  static Result<std::unique_ptr<Impl>> create(Device& device, std::int32_t max_events);

  /// Whether a call is in progress whose steps are to be noted.
  [[nodiscard]] bool is_noting() const { return is_noting_; }
  [[nodiscard]] std::size_t num_events() const {
    return pending_.size() + static_cast<std::size_t>(num_dropped_);
  }

  /// A call begins on a stream. One that a recording takes up is counted only.
  Result<void> begin_call(Stream& stream, std::string_view label, std::string_view algorithm,
                          bool is_recorded);
  void end_call() { is_noting_ = false; }
  /// Of a call that begin_call() gave none.
  void set_algorithm(std::string_view algorithm);
  void set_schedule(trace::TextId schedule);

  /// The steps of a program, with numbers of this timeline. Found again by the list's address.
  const timeline::Patterns& patterns_of(const std::shared_ptr<const timeline::StepList>& steps);

  /// The next end() on this stream ends a step that begins here. `name` is the stream's; kNoText keeps it.
  Result<void> begin(Stream& stream, trace::TextId name);
  /// What was enqueued on the stream since is such a step.
  Result<void> end(Stream& stream, const timeline::Pattern& pattern, std::int64_t bytes);
  /// The same of a step that is written down for once; `text` without its stream.
  Result<void> end(Stream& stream, std::string_view text, timeline::Pattern pattern, std::int64_t bytes);
  /// The same of a step that only makes `stream` wait for `source`: it ends when both are there, which needs
  /// no stamp of its own.
  Result<void> join(Stream& stream, const Stream& source, const timeline::Pattern& pattern);
  /// The same of a step that is too short for a stamp: what it takes is the next one's.
  Result<void> pass(Stream& stream, const timeline::Pattern& pattern);
  /// For the product that begin() began.
  [[nodiscard]] ChunkWaitLog chunk_waits();

  Result<trace::RankEvents> take(int rank);

 private:
  struct Pending {
    trace::Event event;
    std::int32_t begin_at = 0;  // numbers of stamps
    std::int32_t end_at = 0;
    std::int64_t not_before_ns = 0;  // the host had not enqueued it
    timeline::ProductChunks chunks = {};
  };
  /// A number whose time is the later one of two others.
  struct Later {
    std::int32_t at = 0;
    std::int32_t first = 0;
    std::int32_t second = 0;
  };
  struct Row {
    std::uint64_t stream = 0;  // its id
    trace::TextId name = trace::kNoText;
    std::int32_t last = -1;  // the last stamp
    std::int64_t begin_ns = 0;
  };

  Impl(Device& device, std::unique_ptr<Stamps> stamps, std::int32_t max_events);
  [[nodiscard]] bool is_full() const;
  /// Where a step of this row begins that ends at `end_at`; null if it finds no room, and is counted.
  [[nodiscard]] Pending* note(Row& row, const timeline::Pattern& pattern, std::int32_t end_at);
  [[nodiscard]] Row& row_of(const Stream& stream);
  [[nodiscard]] std::int32_t next_meeting(std::int32_t channel);
  void add_chunk_waits(const StampedTimes& times, const std::vector<std::int32_t>& places,
                       trace::RankEvents& rank) const;
  void start_anew();

  Device& device_;
  std::unique_ptr<Stamps> stamps_;
  std::size_t max_events_;
  std::int32_t max_stamps_;
  trace::RankEvents noted_;  // its texts and calls
  std::vector<Pending> pending_;
  std::vector<Later> later_;  // in the order of their numbers
  std::int32_t num_stamps_ = 0;
  std::int64_t num_dropped_ = 0;
  std::vector<Row> rows_;  // of the call in progress
  std::vector<std::pair<std::int32_t, std::int32_t>>
      meetings_;  // of the call in progress: how many a channel
  std::unordered_map<const timeline::StepList*, timeline::Patterns> patterns_;
  bool is_noting_ = false;
};

namespace timeline {

/// The group's timeline while a call is in progress whose steps are to be noted; else null.
[[nodiscard]] Timeline::Impl* noting(const Group& group);

/// A call of a collective op. Nothing happens where the group has no timeline.
class NotedCall {
 public:
  explicit NotedCall(const Group& group);
  ~NotedCall() {
    if (timeline_ != nullptr) timeline_->end_call();
  }
  NotedCall(const NotedCall&) = delete;
  NotedCall& operator=(const NotedCall&) = delete;

  [[nodiscard]] Result<void> begin(Stream& stream, std::string_view label, std::string_view algorithm,
                                   bool is_recorded);
  /// What came before is the wait until all ranks have agreed on the call.
  [[nodiscard]] Result<void> agreed(Stream& stream);
  /// What was noted so far is none of the call's own steps: checks of its inputs.
  void checked() {
    if (is_noting()) num_events_ = timeline_->num_events();
  }
  /// A call without any other step is one step.
  [[nodiscard]] Result<void> finish(Stream& stream);

 private:
  [[nodiscard]] bool is_noting() const { return timeline_ != nullptr && timeline_->is_noting(); }
  Timeline::Impl* timeline_;
  std::size_t num_events_ = 0;  // before the call's own steps
};

/// The parts of a collective, noted as they are enqueued on one stream.
class Parts {
 public:
  Parts(const Group& group, Stream& stream) : timeline_(noting(group)), stream_(stream), rank_(group.rank()) {
    if (timeline_ != nullptr) num_events_ = timeline_->num_events();
  }

  /// The first of them on a stream other than the call's begins here.
  [[nodiscard]] Result<void> begin() const;
  // What was enqueued since the last of them was that. `what` is a literal.
  [[nodiscard]] Result<void> copied(const char* what, std::int64_t bytes) const;
  [[nodiscard]] Result<void> got(int rank, std::int64_t bytes) const;
  [[nodiscard]] Result<void> put(int rank, std::int64_t bytes) const;
  [[nodiscard]] Result<void> summed() const;
  [[nodiscard]] Result<void> met(int channel, bool on_stream = false) const;  ///< see symm::meets_on_stream()
  /// All of it, unless parts of it were noted: "all_gather by mailboxes".
  [[nodiscard]] Result<void> done(std::string_view op, std::string_view algorithm, std::int64_t bytes) const;

 private:
  Timeline::Impl* timeline_;
  Stream& stream_;
  int rank_;
  std::size_t num_events_ = 0;
};

}  // namespace timeline
}  // namespace tandem
