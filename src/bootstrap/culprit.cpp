// Who is at fault when a wait times out, and the texts that say so.
#include <cstring>
#include <string_view>

#include "base/format.hpp"
#include "bootstrap/group_control.hpp"
#include "bootstrap/wait_circles.hpp"

namespace tandem::bootstrap {
namespace {

/// Text that ends at a zero, or with the array.
template <std::size_t kSize>
std::string_view text_of(const char (&text)[kSize]) {
  return {text, ::strnlen(text, kSize)};
}

}  // namespace

std::string GroupControl::describe_rank(int rank) const {
  return fmt::format("rank {} (pid {})", rank, memory_->rank(rank).process.pid);
}

std::string GroupControl::describe_wait(const WaitInfo& info) const {
  std::string text = describe_rank(rank());
  if (info.actor == WaitInfo::Actor::kOwnCall) {
    text += fmt::format(" waits for its own calls up to #{}", info.sequence);
  } else {
    text += fmt::format(" waits for rank {}", info.peer);
  }
  text += fmt::format(" in group '{}'", options_.name);
  const AgreementSlot& slot = own().slots[info.sequence % kNumAgreementSlots];
  if (info.actor == WaitInfo::Actor::kCall)
    text += fmt::format(", call #{} '{}'", info.sequence, text_of(slot.fingerprint.text));
  if (info.actor == WaitInfo::Actor::kHost)
    text += fmt::format(", exchange '{}'", text_of(own().exchange.what));
  return text;
}

std::string GroupControl::describe_place(const WaitInfo& info) {
  if (info.channel >= 0) return fmt::format(" on channel {}", info.channel);
  return info.chunk >= 0 ? fmt::format(" on chunk {}", info.chunk) : "";
}

int GroupControl::waited_for_by(int rank) const {
  const auto peer_in = [&](const std::atomic<std::int32_t>& word) {
    const int peer = word.load(std::memory_order_relaxed) - 1;
    return peer >= 0 && peer < size() && peer != rank ? peer : -1;
  };
  const RankArea& area = memory_->rank(rank);
  for (const auto& word : area.waits_for) {
    if (const int peer = peer_in(word); peer >= 0) return peer;
  }
  if (const int peer = peer_in(area.device_waits_for); peer >= 0) return peer;
  const auto wait = static_cast<int>(area.stream_waits.load(std::memory_order_relaxed));
  return wait == 0 ? -1 : (wait - 1) % RankArea::kMostStreamRanks;
}

std::string GroupControl::describe_idle(int rank) const {
  const std::string elsewhere = WaitCircles::first_wait_of(memory_->rank(rank));
  return elsewhere.empty() ? fmt::format("{} waits for nobody in this group", describe_rank(rank))
                           : elsewhere;
}

int GroupControl::waiter_of(const WaitInfo& info) const {
  return info.rank >= 0 ? info.rank : rank();
}

GroupControl::Culprit GroupControl::find_culprit(const WaitInfo& info) const {
  const int peer = info.peer;
  const ProcessId& self = own().process;
  for (int r = 0; r < size(); ++r) {
    const ProcessId& process = memory_->rank(r).process;
    if (process.pid == self.pid || !self.shares_pids_with(process)) continue;
    const auto stat = stat_of(process);
    if (stat && stat->is_stopped()) {
      return {r, fmt::format("{} is stopped", describe_rank(r))};
    }
  }
  if (peer < 0) return {};
  // Follow "waits for" to a rank that waits for nobody: it should have acted and did not.
  int current = peer;
  for (int steps = 0; steps < size(); ++steps) {
    const int next = waited_for_by(current);
    if (next < 0) return {current, describe_idle(current)};
    if (next == waiter_of(info))
      return {current, fmt::format("{} waits for rank {}: a circle", describe_rank(current), next)};
    current = next;
  }
  return {peer, fmt::format("{} is in a circle of waits", describe_rank(peer))};
}

std::string GroupControl::describe_timeout(const Wait& wait, std::chrono::nanoseconds waited,
                                           const Culprit& culprit) const {
  const WaitInfo& info = wait.info;
  std::string text = fmt::format("rank {} waited {} ms", waiter_of(info),
                                 std::chrono::duration_cast<std::chrono::milliseconds>(waited).count());
  if (info.peer >= 0) text += fmt::format(" for rank {}", info.peer);
  text += fmt::format(" in {}{}", info.what, describe_place(info));
  if (waiter_of(info) == rank()) {
    const std::lock_guard lock(last_call_mutex_);
    const std::string_view call(last_call_.text);
    if (!call.empty()) text += fmt::format(" after call #{} '{}'", last_sequence_, call);
  }
  if (info.word != nullptr) {
    text += fmt::format(": expected {}, seen {}", info.expected, info.word->load(std::memory_order_relaxed));
  }
  if (wait.has_come != nullptr) {
    std::vector<int> missing;
    for (int r = 0; r < size(); ++r) {
      if (!(*wait.has_come)(r)) missing.push_back(r);
    }
    text +=
        fmt::format("; not there: {} {}", missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", "));
  }
  if (!culprit.why.empty()) text += "; " + culprit.why;
  return text;
}

}  // namespace tandem::bootstrap
