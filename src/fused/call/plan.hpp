#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tandem/bootstrap/group.hpp>
#include <tandem/fused/report.hpp>
#include <utility>
#include <vector>

#include "base/lru_cache.hpp"
#include "program/bindings.hpp"
#include "program/program.hpp"
#include "timeline/timeline_impl.hpp"

namespace tandem::fused {

[[nodiscard]] std::uint64_t next_plan_id();

/// Products of a plan that were prepared; see run_call().
struct PreparedProducts {
  std::uint64_t stream = 0;  ///< its id
  std::uint64_t layout = 0;  ///< how the call's tensors lie and are aligned
  friend bool operator==(const PreparedProducts&, const PreparedProducts&) = default;
};

/// What is decided once a problem, and what has become of its calls. Reports point to the texts and share the
/// plan: a group forgets it when others take its place.
struct OpPlan {
  /// A number of its own, which no other plan of the process ever has: recordings of a plan's calls are found
  /// by it, and by no other plan that has its address later.
  std::uint64_t id = next_plan_id();
  Algorithm algorithm = Algorithm::kSerial;
  std::string reason;
  std::string key;
  std::string label;        ///< for profilers and traces: "all_gather_matmul [4096,3584,8192] bf16 pipelined"
  std::string fingerprint;  ///< what the ranks compare
  std::vector<Candidate> candidates;
  std::optional<cost::Key> tune_key;  ///< none without plan_n, plan_k
  DeviceId device;
  program::Program program;                       ///< what runs
  program::Bindings bindings;                     ///< of the last call
  std::array<PreparedProducts, 2> prepared = {};  ///< the last first
  bool is_recordable = true;                      ///< no call of it was refused as a recording
  /// The program's steps as timelines have them; null until one asks.
  std::shared_ptr<const timeline::StepList> noted_steps = {};
  /// Of workspace, that a recording of its calls needs.
  std::int64_t recorded_workspace_bytes = 0;
};

/// Plans by problem, of those that were used last; a look-up allocates nothing. A plan in use stays though
/// its group forgets it.
template <class Problem, class Plan>
class PlanCache {
 public:
  explicit PlanCache(const Group& group) : plans_(static_cast<std::size_t>(group.config().max_plans)) {}
  /// Null if there is none.
  [[nodiscard]] std::shared_ptr<Plan> find(const Problem& problem) {
    const std::shared_ptr<Plan>* const found = plans_.find(problem);
    return found == nullptr ? nullptr : *found;
  }
  std::shared_ptr<Plan> insert(const Problem& problem, Plan plan) {
    return plans_.insert(problem, std::make_shared<Plan>(std::move(plan)));
  }
  [[nodiscard]] std::size_t size() const { return plans_.size(); }

 private:
  struct HashProblem {
    std::size_t operator()(const Problem& problem) const { return hash_of(problem); }
  };
  LruCache<Problem, std::shared_ptr<Plan>, HashProblem> plans_;
};

/// The group's plans of one kind of op; `key` names it.
template <class Problem, class Plan>
[[nodiscard]] PlanCache<Problem, Plan>& plans_of(Group& group, std::string_view key) {
  using Plans = PlanCache<Problem, Plan>;
  return group.extension<Plans>(key, [&group] { return std::make_shared<Plans>(group); });
}

}  // namespace tandem::fused
