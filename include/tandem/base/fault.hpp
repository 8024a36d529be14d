#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <vector>

namespace tandem {

/// What an injected fault does. The caller carries out kCorrupt: it flips bytes of what it has just moved.
/// FaultPlan::hit() carries out the others.
enum class FaultAction : std::uint8_t { kNone, kDie, kStop, kDelay, kCorrupt };

/// Faults to inject at named points, to prove that errors are noticed. It is empty in ordinary runs, where
/// hit() is one branch.
///
/// The text has the form `point:rank:nth:action[:ms]`, and commas join several. rank and nth may be `*`. nth
/// counts from 1. The actions are die (SIGKILL), stop (SIGSTOP), delay (needs ms) and corrupt (put and get
/// only). The points are calls of symmetric memory: put (data or signal), get, wait, barrier, agree,
/// rendezvous.
class FaultPlan {
 public:
  FaultPlan() = default;
  /// Reads that text.
  /// Errors:  kInvalidArgument with the piece that is wrong, and the form.
  [[nodiscard]] static Result<FaultPlan> parse(std::string_view text);

  /// Carries out what the plan has for this point and rank, and returns it. Of several actions it returns
  /// kCorrupt, which the caller has to carry out. Thread-safe.
  FaultAction hit(std::string_view point, int rank) const {
    return rules_.empty() ? FaultAction::kNone : hit_rules(point, rank);
  }

 private:
  struct Rule {
    std::string point;
    int rank = -1;          // -1: any
    std::int64_t nth = -1;  // -1: every time
    FaultAction action = FaultAction::kNone;
    std::chrono::milliseconds delay{0};
    std::shared_ptr<std::atomic<std::int64_t>> count;
  };
  FaultAction hit_rules(std::string_view point, int rank) const;
  std::vector<Rule> rules_;
};

}  // namespace tandem
