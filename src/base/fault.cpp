#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <iterator>
#include <optional>
#include <tandem/base/fault.hpp>
#include <thread>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem {
namespace {

/// Where the library looks at the plan, and whether something moves there that can be corrupted.
struct Point {
  std::string_view name;
  bool moves_data;
};
constexpr Point kPoints[] = {{"put", true},      {"get", true},    {"wait", false},
                             {"barrier", false}, {"agree", false}, {"rendezvous", false}};

bool is_known(std::string_view point, FaultAction action) {
  return std::any_of(std::begin(kPoints), std::end(kPoints), [&](const Point& known) {
    return known.name == point && (known.moves_data || action != FaultAction::kCorrupt);
  });
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::optional<int> parse_count(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

/// A count, or -1 for `*`.
std::optional<int> parse_pattern(std::string_view text) {
  return text == "*" ? -1 : parse_count(text);
}

std::optional<FaultAction> parse_action(std::string_view text) {
  if (text == "die") return FaultAction::kDie;
  if (text == "stop") return FaultAction::kStop;
  if (text == "delay") return FaultAction::kDelay;
  if (text == "corrupt") return FaultAction::kCorrupt;
  return std::nullopt;
}

}  // namespace

Result<FaultPlan> FaultPlan::parse(std::string_view text) {
  FaultPlan plan;
  if (text.empty()) return plan;
  for (const std::string_view piece : split(text, ',')) {
    auto parts = split(piece, ':');
    const std::size_t num_parts = parts.size();
    parts.resize(5);  // what is missing does not parse
    const auto rank = parse_pattern(parts[1]);
    const auto nth = parse_pattern(parts[2]);
    const auto action = parse_action(parts[3]);
    // A delay without a time would prove nothing, a time without a delay is a slip.
    const bool is_delay = action == FaultAction::kDelay;
    const auto delay_ms = is_delay ? parse_count(parts[4]) : std::optional<int>(0);
    if (num_parts != (is_delay ? 5 : 4) || parts[0].empty() || !rank || !nth || *nth == 0 || !action ||
        !delay_ms) {
      return failf(
          ErrorCode::kInvalidArgument,
          "fault '{}' is not of the form point:rank:nth:action[:ms] with action die, stop, delay (needs "
          "ms) or corrupt",
          piece);
    }
    if (!is_known(parts[0], *action)) {
      return failf(
          ErrorCode::kInvalidArgument,
          "fault '{}': '{}' is no point where that can happen; need put, get, wait, barrier, agree or "
          "rendezvous, and to corrupt put or get",
          piece, parts[0]);
    }
    plan.rules_.push_back({std::string(parts[0]), *rank, *nth, *action, std::chrono::milliseconds(*delay_ms),
                           std::make_shared<std::atomic<std::int64_t>>(0)});
  }
  return plan;
}

FaultAction FaultPlan::hit_rules(std::string_view point, int rank) const {
  FaultAction done = FaultAction::kNone;
  for (const Rule& rule : rules_) {
    if (rule.point != point || (rule.rank >= 0 && rule.rank != rank)) continue;
    const std::int64_t count = rule.count->fetch_add(1) + 1;
    if (rule.nth >= 0 && count != rule.nth) continue;
    if (done != FaultAction::kCorrupt) done = rule.action;
    if (rule.action == FaultAction::kDie) ::kill(::getpid(), SIGKILL);
    if (rule.action == FaultAction::kStop) ::kill(::getpid(), SIGSTOP);
    if (rule.action == FaultAction::kDelay) std::this_thread::sleep_for(rule.delay);
  }
  return done;
}

}  // namespace tandem
