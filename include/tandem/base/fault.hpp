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

/// What an injected fault does. kCorrupt is carried out by the caller (it flips bytes of what it just moved);
/// the others by FaultPlan::hit itself.
enum class FaultAction : std::uint8_t { kNone, kDie, kStop, kDelay, kCorrupt };

/// Faults to inject at named points, to prove that errors are noticed. Empty in ordinary runs, where hit() is
/// one branch.
///
/// Form of the text: `point:rank:nth:action[:ms]`, several joined by commas. rank and nth may be `*`; nth
/// counts from 1; action = die (SIGKILL) | stop (SIGSTOP) | delay (needs ms) | corrupt (put and get
/// only). Points: put (data or signal), get, wait, barrier, agree, rendezvous: calls of symmetric memory.
class FaultPlan {
 public:
  FaultPlan() = default;
  /// Errors: kInvalidArgument with the offending piece and the form.
  [[nodiscard]] static Result<FaultPlan> parse(std::string_view text);

  /// Called where the point is passed by `rank`; thread-safe. Does what the plan says and returns it; of
  /// several actions kCorrupt, since that one is left to the caller.
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
