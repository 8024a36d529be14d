#include <tandem/bootstrap/flight_record.hpp>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/format.hpp"
#include "bootstrap/control_memory.hpp"
#include "bootstrap/group_impl.hpp"
#include "io/json_text.hpp"

namespace tandem {
namespace {

std::string json_of(const CallRecord& call) {
  return fmt::format(
      R"({{"sequence": {}, "fingerprint": "{:016x}", "op": {}, "state": "{}", "entered_ns": {}, )"
      R"("agreed_ns": {}, "enqueued_ns": {}, "ended_ns": {}}})",
      call.sequence, call.fingerprint, io::json_text(call.op), to_string(call.state), call.entered_ns,
      call.agreed_ns, call.enqueued_ns, call.ended_ns);
}

std::string json_of(const RankFlightRecord& rank) {
  std::string text = fmt::format(R"({{"rank": {}, "process": {}, "has_left": {}, "calls": [)", rank.rank,
                                 rank.process, rank.has_left);
  for (std::size_t i = 0; i < rank.calls.size(); ++i)
    text += fmt::format("{}\n   {}", i == 0 ? "" : ",", json_of(rank.calls[i]));
  return text + "]}";
}

/// What the ranks' records say of one call.
class Call {
 public:
  Call(const FlightRecord& record, std::uint64_t sequence)
      : record_(record), sequence_(sequence), calls_(record.ranks.size(), nullptr) {}

  [[nodiscard]] std::uint64_t sequence() const { return sequence_; }
  /// Of a call that a rank has twice, the first one counts.
  void add(std::size_t rank, const CallRecord& call) {
    if (calls_[rank] == nullptr) calls_[rank] = &call;
  }

  [[nodiscard]] std::optional<Divergence> divergence() const {
    if (const auto rank = first([](const CallRecord& call) { return call.state == CallState::kRefused; }))
      return at(*rank, fmt::format("rank {} refused it: {}", *rank, calls_[*rank]->op));
    const std::uint64_t most = fingerprint_of_most();
    if (const auto rank = first([&](const CallRecord& call) { return call.fingerprint != most; }))
      return at(*rank, fmt::format("rank {} runs '{}'", *rank, calls_[*rank]->op));
    if (const auto missing = std::find(calls_.begin(), calls_.end(), nullptr); missing != calls_.end()) {
      const auto rank = static_cast<std::size_t>(missing - calls_.begin());
      return at(rank, fmt::format("rank {} has not come to it{}", rank,
                                  record_.ranks[rank].has_left ? ": it had left the group" : ""));
    }
    return behind();
  }

 private:
  /// Who has not come as far as the one that came furthest.
  [[nodiscard]] std::optional<Divergence> behind() const {
    const auto furthest = std::max_element(calls_.begin(), calls_.end(),
                                           [](const auto* a, const auto* b) { return a->state < b->state; });
    const CallState most = (*furthest)->state;
    if (const auto rank = first([&](const CallRecord& call) { return call.state < most; })) {
      return at(*rank,
                fmt::format("rank {} has {} it, rank {} has {} it", *rank, to_string(calls_[*rank]->state),
                            record_.ranks[static_cast<std::size_t>(furthest - calls_.begin())].rank,
                            to_string(most)));
    }
    return std::nullopt;
  }

  [[nodiscard]] Divergence at(std::size_t rank, std::string why) const {
    const std::uint64_t most = fingerprint_of_most();
    std::string op;
    for (const CallRecord* call : calls_) {
      if (op.empty() && call != nullptr && call->fingerprint == most) op = call->op;
    }
    return {record_.ranks[rank].rank, sequence_, std::move(op), std::move(why)};
  }

  template <class Is>
  [[nodiscard]] std::optional<std::size_t> first(Is&& is) const {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if (calls_[i] != nullptr && is(*calls_[i])) return i;
    }
    return std::nullopt;
  }

  /// Of equally many, that of the lowest rank.
  [[nodiscard]] std::uint64_t fingerprint_of_most() const {
    std::map<std::uint64_t, int> counts;
    for (const CallRecord* call : calls_) {
      if (call != nullptr && call->state != CallState::kRefused) ++counts[call->fingerprint];
    }
    std::uint64_t most = 0;
    int count = 0;
    for (const CallRecord* call : calls_) {
      if (call == nullptr || counts[call->fingerprint] <= count) continue;
      most = call->fingerprint;
      count = counts[call->fingerprint];
    }
    return most;
  }

  const FlightRecord& record_;
  std::uint64_t sequence_;
  std::vector<const CallRecord*> calls_;  // by rank; null: it has not come to it
};

/// From the first call that all rings still hold to the last one that any rank has come to.
std::optional<std::pair<std::uint64_t, std::uint64_t>> range_of(const FlightRecord& record) {
  std::optional<std::pair<std::uint64_t, std::uint64_t>> range;
  const auto is_before = [](std::uint64_t a, std::uint64_t b) {
    return static_cast<std::int64_t>(a - b) < 0;
  };
  for (const RankFlightRecord& rank : record.ranks) {
    if (rank.calls.empty()) continue;
    const std::uint64_t first = rank.calls.front().sequence;
    const std::uint64_t last = rank.calls.back().sequence;
    if (!range) range = {first, last};
    // A rank whose ring is full has forgotten what was before.
    if (is_before(range->first, first)) range->first = first;
    if (is_before(range->second, last)) range->second = last;
  }
  return range;
}

}  // namespace

std::string_view to_string(CallState state) {
  switch (state) {
    case CallState::kEntered:
      return "entered";
    case CallState::kAgreed:
      return "agreed on";
    case CallState::kEnqueued:
      return "enqueued";
    case CallState::kEnded:
      return "ended";
    case CallState::kRefused:
      return "refused";
  }
  return "?";
}

FlightRecord flight_record(const Group& group) {
  return group.impl().control->flight_record();
}

std::string to_json(const FlightRecord& record) {
  constexpr int kSchema = 1;
  std::string text =
      fmt::format("{{\"schema\": {},\n \"group\": {},\n \"error\": {},\n \"culprit\": {},\n", kSchema,
                  io::json_text(record.group), record.error.empty() ? "null" : io::json_text(record.error),
                  record.culprit < 0 ? "null" : std::to_string(record.culprit));
  text += " \"ranks\": [";
  for (std::size_t i = 0; i < record.ranks.size(); ++i)
    text += fmt::format("{}\n  {}", i == 0 ? "" : ",", json_of(record.ranks[i]));
  return text + "]}\n";
}

std::optional<Divergence> first_divergence(const FlightRecord& record) {
  const auto range = range_of(record);
  if (!range) return std::nullopt;
  const std::uint64_t first = range->first;
  // Only calls that some rank holds: a file may name numbers that are far apart.
  struct Held {
    std::size_t rank;
    const CallRecord* call;
  };
  std::vector<Held> held;
  for (std::size_t i = 0; i < record.ranks.size(); ++i) {
    for (const CallRecord& call : record.ranks[i].calls) {
      if (call.sequence - first <= range->second - first) held.push_back({i, &call});
    }
  }
  std::stable_sort(held.begin(), held.end(), [&](const Held& a, const Held& b) {
    return a.call->sequence - first < b.call->sequence - first;
  });
  for (auto one = held.begin(); one != held.end();) {
    Call call(record, one->call->sequence);
    for (; one != held.end() && one->call->sequence == call.sequence(); ++one)
      call.add(one->rank, *one->call);
    if (auto found = call.divergence()) return found;
  }
  return std::nullopt;
}

}  // namespace tandem
