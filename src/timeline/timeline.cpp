#include <tandem/timeline/timeline.hpp>

#include <algorithm>
#include <tuple>

#include "base/format.hpp"
#include "base/try.hpp"
#include "timeline/timeline_impl.hpp"

namespace tandem {
namespace {

using timeline::Pattern;
using timeline::Patterns;
using trace::Category;
using trace::RankEvents;
using trace::WaitFor;

/// "all_gather_matmul [8,8,8] bf16" of "all_gather_matmul [8,8,8] bf16 serial".
std::string_view without_algorithm(std::string_view label, std::string_view algorithm) {
  if (algorithm.empty() || !label.ends_with(algorithm)) return label;
  label.remove_suffix(algorithm.size());
  while (label.ends_with(' ')) label.remove_suffix(1);
  return label;
}

std::string_view backend_of(const Device& device) {
  return device.id().kind == DeviceKind::kCpu ? "cpu" : "cuda";
}

/// In order, those of one product and chunk that overlap as one: many blocks of a kernel wait at once.
std::vector<ChunkWait> merged(std::vector<ChunkWait> waits) {
  std::sort(waits.begin(), waits.end(), [](const ChunkWait& a, const ChunkWait& b) {
    return std::tie(a.tag, a.chunk, a.begin) < std::tie(b.tag, b.chunk, b.begin);
  });
  std::vector<ChunkWait> merged;
  for (const ChunkWait& wait : waits) {
    ChunkWait* const last = merged.empty() ? nullptr : &merged.back();
    if (last != nullptr && last->tag == wait.tag && last->chunk == wait.chunk && wait.begin <= last->end) {
      last->end = std::max(last->end, wait.end);
    } else {
      merged.push_back(wait);
    }
  }
  return merged;
}

/// The number of the wait's chunk among all; -1: it is for chunks of several ranks.
std::int32_t number_of(const ChunkWait& wait, const timeline::ProductChunks& chunks) {
  return wait.chunk < 0 ? -1 : static_cast<std::int32_t>(wait.chunk + chunks.first);
}

}  // namespace

// The timeline of one rank.

Result<std::unique_ptr<Timeline::Impl>> Timeline::Impl::create(Device& device, std::int32_t max_events) {
  if (max_events < 1 || max_events > kMostEvents)
    return failf(ErrorCode::kInvalidArgument, "timeline: room for {} events, need 1 to {}", max_events,
                 kMostEvents);
  auto* const service = device.service<StampService>();
  if (service == nullptr)
    return failf(ErrorCode::kUnsupported, "timeline: streams of {} cannot take times",
                 to_string(device.id()));
  // A call takes one stamp more than it has steps on a stream.
  TANDEM_ASSIGN(auto stamps, service->create(device, 2 * max_events));
  return std::unique_ptr<Impl>(new Impl(device, std::move(stamps), max_events));
}

Timeline::Impl::Impl(Device& device, std::unique_ptr<Stamps> stamps, std::int32_t max_events)
    : device_(device),
      stamps_(std::move(stamps)),
      max_events_(static_cast<std::size_t>(max_events)),
      max_stamps_(2 * max_events) {
  pending_.reserve(max_events_);
}

bool Timeline::Impl::is_full() const {
  return pending_.size() >= max_events_ || num_stamps_ >= max_stamps_;
}

Result<void> Timeline::Impl::begin_call(Stream& stream, std::string_view label, std::string_view algorithm,
                                        bool is_recorded) {
  if (is_recorded) {
    ++noted_.num_unseen_calls;
    return {};
  }
  is_noting_ = true;
  rows_.clear();
  meetings_.clear();
  const std::int32_t number = noted_.num_calls++;
  if (!is_full()) {
    noted_.calls.push_back({.number = number, .op = noted_.add_text(without_algorithm(label, algorithm))});
    set_algorithm(algorithm);
  }
  return begin(stream, trace::kNoText);
}

void Timeline::Impl::set_algorithm(std::string_view algorithm) {
  if (noted_.calls.empty() || noted_.calls.back().number != noted_.num_calls - 1) return;
  trace::TextId& known = noted_.calls.back().algorithm;
  if (known == trace::kNoText && !algorithm.empty()) known = noted_.add_text(algorithm);
}

void Timeline::Impl::set_schedule(trace::TextId schedule) {
  if (noted_.calls.empty() || noted_.calls.back().number != noted_.num_calls - 1) return;
  noted_.calls.back().schedule = schedule;
}

const Patterns& Timeline::Impl::patterns_of(const std::shared_ptr<const timeline::StepList>& steps) {
  Patterns& known = patterns_[steps.get()];
  if (known.of != nullptr) return known;
  known.of = steps;
  known.schedule = noted_.add_text(steps->schedule);
  for (const timeline::NamedStep& step : steps->steps) {
    Pattern& pattern = known.steps.emplace_back();
    pattern = {.event = step.event, .channel = step.channel, .chunks = step.chunks};
    pattern.event.step = noted_.add_text(step.text);
    pattern.event.stream = noted_.add_text(step.stream);
    if (!step.notation.empty()) pattern.event.notation = noted_.add_text(step.notation);
  }
  return known;
}

Timeline::Impl::Row& Timeline::Impl::row_of(const Stream& stream) {
  for (Row& row : rows_) {
    if (row.stream == stream.id()) return row;
  }
  // A program gives its own names to begin().
  const std::size_t idx = rows_.size();
  const std::string name = idx == 0 ? "cur" : idx == 1 ? "bk" : fmt::format("s{}", idx);
  return rows_.emplace_back(Row{.stream = stream.id(), .name = noted_.add_text(name)});
}

Result<void> Timeline::Impl::begin(Stream& stream, trace::TextId name) {
  Row& row = row_of(stream);
  if (name != trace::kNoText) row.name = name;
  row.begin_ns = host_now_ns();
  if (row.last >= 0 || is_full()) return {};
  row.last = num_stamps_++;
  return stamps_->take(stream, row.last);
}

Timeline::Impl::Pending* Timeline::Impl::note(Row& row, const Pattern& pattern, std::int32_t end_at) {
  const std::int32_t meeting = pattern.channel < 0 ? -1 : next_meeting(pattern.channel);
  if (row.last < 0 || is_full()) {
    ++num_dropped_;
    return nullptr;
  }
  Pending& noted = pending_.emplace_back();
  noted = {.event = pattern.event,
           .begin_at = row.last,
           .end_at = end_at,
           .not_before_ns = row.begin_ns,
           .chunks = pattern.chunks};
  noted.event.call = noted_.num_calls - 1;
  noted.event.meeting = meeting;
  row.last = end_at;
  row.begin_ns = host_now_ns();
  return &noted;
}

Result<void> Timeline::Impl::end(Stream& stream, const Pattern& pattern, std::int64_t bytes) {
  Row& row = row_of(stream);
  Pending* const noted = note(row, pattern, num_stamps_);
  if (noted == nullptr) return {};
  noted->event.bytes = bytes;
  ++num_stamps_;
  return stamps_->take(stream, row.last);
}

Result<void> Timeline::Impl::join(Stream& stream, const Stream& source, const Pattern& pattern) {
  const std::int32_t source_at = row_of(source).last;
  Row& row = row_of(stream);
  // Whatever is on a stream without stamps is none of the call's.
  if (source_at < 0) return end(stream, pattern, 0);
  const Later later{.at = num_stamps_, .first = row.last, .second = source_at};
  if (note(row, pattern, later.at) == nullptr) return {};
  ++num_stamps_;
  later_.push_back(later);
  return {};
}

Result<void> Timeline::Impl::pass(Stream& stream, const Pattern& pattern) {
  Row& row = row_of(stream);
  static_cast<void>(note(row, pattern, row.last));
  return {};
}

Result<void> Timeline::Impl::end(Stream& stream, std::string_view text, Pattern pattern, std::int64_t bytes) {
  const trace::TextId name = row_of(stream).name;
  pattern.event.stream = name;
  pattern.event.step = noted_.add_text(fmt::format("{}: {}", noted_.text(name), text));
  return end(stream, pattern, bytes);
}

/// Numbers that ranks find for the same meeting of a call, as long as their programs meet in one order.
std::int32_t Timeline::Impl::next_meeting(std::int32_t channel) {
  constexpr std::int32_t kMostOfChannel = 1 << 16;
  for (auto& [known, count] : meetings_) {
    if (known == channel) return channel * kMostOfChannel + count++;
  }
  meetings_.emplace_back(channel, 1);
  return channel * kMostOfChannel;
}

ChunkWaitLog Timeline::Impl::chunk_waits() {
  return is_full() ? ChunkWaitLog{} : stamps_->chunk_waits(static_cast<std::int32_t>(pending_.size()));
}

void Timeline::Impl::add_chunk_waits(const StampedTimes& times, const std::vector<std::int32_t>& places,
                                     RankEvents& rank) const {
  for (const ChunkWait& wait : merged(times.chunk_waits)) {
    const auto tag = static_cast<std::size_t>(wait.tag);
    if (wait.tag < 0 || tag >= places.size() || places[tag] < 0 || rank.events.size() >= 2 * max_events_) {
      ++rank.num_dropped;
      continue;
    }
    const trace::Event& product = rank.events[static_cast<std::size_t>(places[tag])];
    const timeline::ProductChunks& chunks = pending_[tag].chunks;
    const std::int32_t number = number_of(wait, chunks);
    trace::Event event{.begin_ns = wait.begin,
                       .end_ns = wait.end,
                       .call = product.call,
                       .peer = number < 0 ? -1 : static_cast<std::int32_t>(number / chunks.per_rank),
                       .chunk = number,
                       .within = places[tag],
                       .stream = product.stream,
                       .category = Category::kWait,
                       .wait_for = WaitFor::kPeer};
    // A clock of a device is aligned to the host's, and its waits lie in their product.
    event.begin_ns = std::clamp(event.begin_ns, product.begin_ns, product.end_ns);
    event.end_ns = std::clamp(event.end_ns, event.begin_ns, product.end_ns);
    const std::string chunk = event.chunk < 0 ? std::string("chunks of several ranks")
                                              : fmt::format("chunk {} of rank {}", event.chunk, event.peer);
    event.step = rank.add_text(fmt::format("{}: the product waits for {}", rank.text(product.stream), chunk));
    rank.events.push_back(event);
  }
  rank.num_dropped += times.num_lost_chunk_waits;
}

Result<RankEvents> Timeline::Impl::take(int number) {
  TANDEM_ASSIGN(StampedTimes times, stamps_->read());
  times.at.resize(static_cast<std::size_t>(num_stamps_), StampedTimes::kNever);
  for (const Later& later : later_) {
    const std::int64_t first = times.at[static_cast<std::size_t>(later.first)];
    const std::int64_t second = times.at[static_cast<std::size_t>(later.second)];
    const bool are_there = first != StampedTimes::kNever && second != StampedTimes::kNever;
    times.at[static_cast<std::size_t>(later.at)] = are_there ? std::max(first, second) : StampedTimes::kNever;
  }
  RankEvents rank = noted_;
  rank.rank = number;
  rank.num_dropped = num_dropped_;
  rank.uncertainty_ns = stamps_->uncertainty_ns();
  rank.clock = stamps_->clock();
  rank.device = device_.description();
  rank.backend = backend_of(device_);
  std::vector<std::int32_t> places;  // in rank.events, of each pending one
  for (const Pending& noted : pending_) {
    trace::Event event = noted.event;
    event.begin_ns = times.at[static_cast<std::size_t>(noted.begin_at)];
    event.end_ns = times.at[static_cast<std::size_t>(noted.end_at)];
    const bool has_run = event.begin_ns != StampedTimes::kNever && event.end_ns != StampedTimes::kNever;
    places.push_back(has_run ? static_cast<std::int32_t>(rank.events.size()) : -1);
    if (!has_run) {
      ++rank.num_dropped;
      continue;
    }
    // Its stream was idle until the host had enqueued it.
    event.begin_ns = std::min(std::max(event.begin_ns, noted.not_before_ns), event.end_ns);
    rank.events.push_back(event);
  }
  add_chunk_waits(times, places, rank);
  start_anew();
  return rank;
}

void Timeline::Impl::start_anew() {
  noted_ = {};
  patterns_.clear();
  pending_.clear();
  later_.clear();
  num_stamps_ = 0;
  num_dropped_ = 0;
}

// What users call.

Timeline::Timeline(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Timeline::~Timeline() = default;

Result<std::shared_ptr<Timeline>> Timeline::create(Device& device, std::int32_t max_events) {
  TANDEM_ASSIGN(auto impl, Impl::create(device, max_events));
  return std::shared_ptr<Timeline>(new Timeline(std::move(impl)));
}

Result<RankEvents> Timeline::take(int rank) {
  return impl_->take(rank);
}

Result<trace::Trace> Timeline::gather(Group& group) {
  TANDEM_ASSIGN(const RankEvents mine, take(group.rank()));
  TANDEM_ASSIGN(const auto all, group.all_gather(mine.to_bytes(), "timeline"));
  trace::Trace trace;
  for (const Store::Bytes& bytes : all) {
    TANDEM_ASSIGN(RankEvents rank, RankEvents::from_bytes(bytes));
    trace.push_back(std::move(rank));
  }
  return trace;
}

}  // namespace tandem
