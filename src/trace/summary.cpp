#include <tandem/trace/summary.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <tandem/base/time_text.hpp>
#include <utility>

#include "base/format.hpp"
#include "trace/calls.hpp"
#include "trace/intervals.hpp"
#include "trace/moments.hpp"

namespace tandem::trace {
namespace {

/// One rank's events, ready for questions about moments.
class Lanes {
 public:
  Lanes(const RankEvents& events, const LastBegins& last_begins);

  [[nodiscard]] const RankEvents& events() const { return events_; }
  [[nodiscard]] RankSummary summary() const;
  [[nodiscard]] const std::vector<Event>& waits() const { return waits_; }
  [[nodiscard]] std::int64_t exposed_ns(const Event& wait) const;
  [[nodiscard]] const Event* at_meeting(const Meeting& meeting) const {
    const auto found = meetings_.find(meeting);
    return found == meetings_.end() ? nullptr : found->second;
  }
  [[nodiscard]] Interval largest_gap(const Interval& part) const { return any_.largest_gap(part); }
  /// The event that has most in common with `part`, but no wait for an own stream; null if none has anything.
  [[nodiscard]] const Event* longest_in(const Interval& part) const;

 private:
  const RankEvents& events_;
  std::vector<const Event*> by_begin_;
  std::vector<std::int64_t> latest_end_;  // of by_begin_ up to each one
  std::vector<Event> waits_;              // also those in collectives
  std::map<Meeting, const Event*> meetings_;
  Intervals any_;  // of every event but waits for own streams
  Moments moments_;
};

Lanes::Lanes(const RankEvents& events, const LastBegins& last_begins) : events_(events) {
  std::vector<Interval> any;
  for (const Event& event : events.events) {
    // A wait for an own stream is idle unless that stream does something.
    if (event.wait_for != WaitFor::kOwn) any.push_back(interval_of(event));
    if (auto wait = wait_of(event, last_begins)) waits_.push_back(*wait);
    if (event.meeting >= 0) meetings_.emplace(Meeting{event.call, event.meeting}, &event);
    by_begin_.push_back(&event);
  }
  any_ = Intervals(std::move(any));
  std::stable_sort(by_begin_.begin(), by_begin_.end(),
                   [](const Event* a, const Event* b) { return a->begin_ns < b->begin_ns; });
  moments_ = Moments(by_begin_, last_begins);
  std::int64_t latest = std::numeric_limits<std::int64_t>::min();
  for (const Event* event : by_begin_) latest_end_.push_back(latest = std::max(latest, event->end_ns));
}

RankSummary Lanes::summary() const {
  RankSummary summary{moments_.sums()};
  summary.rank = events_.rank;
  return summary;
}

/// A wait for an own stream that waits itself is that one's.
std::int64_t Lanes::exposed_ns(const Event& wait) const {
  Intervals exposed = Intervals({interval_of(wait)}).without(moments_.busy());
  if (wait.wait_for == WaitFor::kOwn) exposed = exposed.without(moments_.waits());
  return exposed.total();
}

const Event* Lanes::longest_in(const Interval& part) const {
  const Event* longest = nullptr;
  std::int64_t most = 0;
  // All that end behind the part's begin lie behind the first place by which any does.
  auto idx = std::upper_bound(latest_end_.begin(), latest_end_.end(), part.begin) - latest_end_.begin();
  for (; idx < static_cast<std::ptrdiff_t>(by_begin_.size()); ++idx) {
    const Event* event = by_begin_[static_cast<std::size_t>(idx)];
    if (event->begin_ns >= part.end) break;
    if (event->wait_for == WaitFor::kOwn) continue;
    const std::int64_t shared = common(interval_of(*event), part).length();
    if (shared <= most) continue;
    most = shared;
    longest = event;
  }
  return longest;
}

/// Finds who is to blame for a wait.
class Causes {
 public:
  Causes(const std::vector<Lanes>& lanes, std::int64_t origin_ns) : lanes_(lanes), origin_ns_(origin_ns) {}

  /// Fills in Loss::waited_for and because.
  void explain(const Event& wait, int rank, Loss& loss) const { explain(wait, rank, loss, 0); }

 private:
  void explain(const Event& wait, int rank, Loss& loss, int hop) const;
  void blame(int rank, const Interval& part, const std::string& how, Loss& loss, int hop) const;
  [[nodiscard]] const Lanes* of_rank(int rank) const {
    for (const Lanes& one : lanes_) {
      if (one.events().rank == rank) return &one;
    }
    return nullptr;
  }
  [[nodiscard]] std::string ms(std::int64_t ns) const {
    return fmt::format("{:.3f}", us(ns - origin_ns_) / 1000);
  }

  const std::vector<Lanes>& lanes_;
  std::int64_t origin_ns_;
};

std::string text_of(std::int64_t ns) {
  return time_text(us(ns));
}

void Causes::explain(const Event& wait, int rank, Loss& loss, int hop) const {
  const Interval whole = interval_of(wait);
  if (wait.wait_for == WaitFor::kPeer && wait.peer >= 0)
    return blame(wait.peer, whole, fmt::format("rank {} had it {} later", wait.peer, text_of(whole.length())),
                 loss, hop);
  if (wait.wait_for == WaitFor::kOwn)
    return blame(rank, whole, fmt::format("rank {} waited for a stream of its own", rank), loss, hop);
  if (wait.wait_for != WaitFor::kAll) return;
  const Event* last = nullptr;
  const Event* first_out = &wait;
  int last_rank = -1;
  int first_out_rank = rank;
  for (const Lanes& other : lanes_) {
    const Event* there = other.at_meeting({wait.call, wait.meeting});
    if (there == nullptr || other.events().rank == rank) continue;
    if (last == nullptr || there->begin_ns > last->begin_ns) {
      last = there;
      last_rank = other.events().rank;
    }
    if (there->end_ns < first_out->end_ns) {
      first_out = there;
      first_out_rank = other.events().rank;
    }
  }
  if (last == nullptr) return;
  const std::int64_t late_ns = last->begin_ns - wait.begin_ns;
  if (2 * late_ns < whole.length()) {
    // All were there, and one of them went on late: as soon as it did, it was the first to leave.
    loss.waited_for = first_out_rank;
    loss.because +=
        fmt::format("{}all ranks had come after {}; then {} passed, and rank {} was the first to leave",
                    loss.because.empty() ? "" : "; ", text_of(std::max<std::int64_t>(0, late_ns)),
                    text_of(wait.end_ns - std::max(last->begin_ns, wait.begin_ns)), first_out_rank);
    return;
  }
  blame(last_rank, {wait.begin_ns, last->begin_ns},
        fmt::format("rank {} came {} late", last_rank, text_of(late_ns)), loss, hop);
}

/// What the rank did meanwhile; where it waited itself, whom it waited for.
void Causes::blame(int rank, const Interval& part, const std::string& how, Loss& loss, int hop) const {
  loss.waited_for = rank;
  loss.because += loss.because.empty() ? how : fmt::format("; {}", how);
  const Lanes* there = of_rank(rank);
  if (there == nullptr) return;
  const Interval gap = there->largest_gap(part);
  const Event* longest = there->longest_in(part);
  const std::int64_t shared = longest == nullptr ? 0 : common(interval_of(*longest), part).length();
  if (common(gap, part).length() >= shared) {
    if (gap.length() > 0)
      loss.because += fmt::format(": nothing ran there from {} to {} ms", ms(gap.begin), ms(gap.end));
    return;
  }
  loss.because += fmt::format(": '{}' took {} there", there->events().text(longest->step),
                              text_of(longest->end_ns - longest->begin_ns));
  if (longest->category == Category::kWait && hop < static_cast<int>(lanes_.size()))
    explain(*longest, rank, loss, hop + 1);
}

/// "barrier 1" of "cur: barrier 1".
std::string without_stream(std::string_view step) {
  const std::size_t colon = step.find(": ");
  return std::string(colon == std::string_view::npos ? step : step.substr(colon + 2));
}

struct Wait {
  const Event* event;
  const Lanes* lanes;
  std::int64_t exposed_ns;
};

std::vector<Wait> waits_of(const std::vector<Lanes>& lanes) {
  std::vector<Wait> waits;
  for (const Lanes& rank : lanes) {
    for (const Event& event : rank.waits()) {
      if (const std::int64_t exposed = rank.exposed_ns(event); exposed > 0)
        waits.push_back({&event, &rank, exposed});
    }
  }
  std::stable_sort(waits.begin(), waits.end(),
                   [](const Wait& a, const Wait& b) { return a.exposed_ns > b.exposed_ns; });
  return waits;
}

/// The rank that others lost most time for.
int slowest_of(const std::vector<Loss>& losses) {
  std::map<int, double> lost;
  for (const Loss& loss : losses) {
    if (loss.waited_for >= 0 && loss.waited_for != loss.rank) lost[loss.waited_for] += loss.us;
  }
  const auto most = std::max_element(lost.begin(), lost.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == lost.end() ? -1 : most->first;
}

std::optional<double> share_of(double part_us, double whole_us) {
  if (whole_us <= 0) return std::nullopt;
  return part_us / whole_us;
}

}  // namespace

std::optional<double> TimeSums::hidden_share() const {
  return share_of(hidden_us, communication_us);
}

std::optional<double> TimeSums::between_hosts_hidden_share() const {
  return share_of(between_hosts_hidden_us, between_hosts_us);
}

Summary summarize(const Trace& trace, std::size_t most_losses) {
  Summary summary;
  bool is_first = true;
  for (const RankEvents& rank : trace) {
    for (const Event& event : rank.events) {
      summary.begin_ns = is_first ? event.begin_ns : std::min(summary.begin_ns, event.begin_ns);
      summary.end_ns = is_first ? event.end_ns : std::max(summary.end_ns, event.end_ns);
      is_first = false;
    }
  }
  const LastBegins last_begins = last_begins_of(trace);
  std::vector<Lanes> lanes;
  lanes.reserve(trace.size());
  for (const RankEvents& rank : trace) lanes.emplace_back(rank, last_begins);
  for (const Lanes& rank : lanes) summary.ranks.push_back(rank.summary());
  summary.ops = op_summaries(trace, last_begins);
  const Causes causes(lanes, summary.begin_ns);
  for (const Wait& wait : waits_of(lanes)) {
    const RankEvents& events = wait.lanes->events();
    Loss& loss = summary.losses.emplace_back();
    loss = {.rank = events.rank,
            .call = wait.event->call,
            .what = without_stream(events.text(wait.event->step)),
            .us = us(wait.exposed_ns),
            .begin_ns = wait.event->begin_ns,
            .end_ns = wait.event->end_ns};
    causes.explain(*wait.event, events.rank, loss);
  }
  summary.slowest_rank = slowest_of(summary.losses);
  if (summary.losses.size() > most_losses) summary.losses.resize(most_losses);
  return summary;
}

}  // namespace tandem::trace
