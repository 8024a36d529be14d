#include <csignal>
#include <charconv>
#include <optional>
#include <tandem/base/fault.hpp>
#include <thread>
#include <unistd.h>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::optional<std::int64_t> parse_count(std::string_view text) {
  if (text == "*") return -1;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
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
    const auto parts = split(piece, ':');
    const auto rank = parts.size() > 1 ? parse_count(parts[1]) : std::nullopt;
    const auto nth = parts.size() > 2 ? parse_count(parts[2]) : std::nullopt;
    const auto action = parts.size() > 3 ? parse_action(parts[3]) : std::nullopt;
    const auto delay = parts.size() > 4 ? parse_count(parts[4]) : std::optional<std::int64_t>(0);
    if (parts.size() < 4 || parts.size() > 5 || parts[0].empty() || !rank || !nth || *nth == 0 || !action || !delay ||
        *delay < 0) {
      return failf(ErrorCode::kInvalidArgument,
                   "fault '{}' is not of the form point:rank:nth:action[:ms] with action die, stop, delay or corrupt",
                   piece);
    }
    plan.rules_.push_back({std::string(parts[0]), static_cast<int>(*rank), *nth, *action,
                           std::chrono::milliseconds(*delay), std::make_shared<std::atomic<std::int64_t>>(0)});
  }
  return plan;
}

FaultAction FaultPlan::hit_rules(std::string_view point, int rank) const {
  FaultAction done = FaultAction::kNone;
  for (const Rule& rule : rules_) {
    if (rule.point != point || (rule.rank >= 0 && rule.rank != rank)) continue;
    const std::int64_t count = rule.count->fetch_add(1) + 1;
    if (rule.nth >= 0 && count != rule.nth) continue;
    done = rule.action;
    if (rule.action == FaultAction::kDie) ::kill(::getpid(), SIGKILL);
    if (rule.action == FaultAction::kStop) ::kill(::getpid(), SIGSTOP);
    if (rule.action == FaultAction::kDelay) std::this_thread::sleep_for(rule.delay);
  }
  return done;
}

}  // namespace tandem
