#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "base/try.hpp"
#include "bootstrap/group_rates.hpp"
#include "bootstrap/hosts.hpp"
#include "coll/group_lanes.hpp"
#include "coll/nan_check.hpp"
#include "fused/call/choose.hpp"
#include "fused/call/plan.hpp"
#include "program/checks.hpp"
#include "program/verify.hpp"

namespace tandem::fused {

/// What one direction says about a problem before its plan is made.
struct PlanFacts {
  Workload work;
  std::optional<cost::Key> tune_key;
  const cost::Row* measured = nullptr;
  Dims shape;       ///< [m, n, k] of this rank's products together
  std::string key;  ///< of reports
  /// What the report adds whatever runs.
  std::string reason = {};
};

/// Every rank's program is run in the mind, in builds that check.
template <class Problem, class Entry>
[[nodiscard]] Result<void> verify_all([[maybe_unused]] const Problem& problem,
                                      [[maybe_unused]] const Entry& algorithm,
                                      [[maybe_unused]] const Device& device) {
#ifndef NDEBUG
  for (int host = 0; host < problem.num_hosts; ++host) {
    std::vector<program::Program> ranks;
    for (int rank = 0; rank < problem.ranks_per_host(); ++rank) {
      const int of_all = host * problem.ranks_per_host() + rank;
      program::Program built = algorithm.build(problem, of_all, device).program;
      ranks.push_back(problem.checks_nan ? program::with_checks(std::move(built)) : std::move(built));
    }
    TANDEM_TRY(program::verify(ranks));
  }
  return {};
#else
  return {};
#endif
}

/// Decides on one of a direction's algorithms, puts the decision into words, and builds the program.
/// `notes_of(algorithm)`: what the report adds where that one runs, and what of it the ranks have in common.
template <class Plan, class Entry, class Problem, class NotesOf>
[[nodiscard]] Result<Plan> make_plan(std::span<const Entry> algorithms, const Problem& problem,
                                     PlanFacts facts, NotesOf notes_of, Group& group, Device& device) {
  const std::string who = fmt::format("fused_{}", problem.op());
  const std::optional<Prediction> us = predict(facts.work, bootstrap::gpu_rates_of(group));
  std::vector<Candidate> candidates;
  for (const Entry& one : algorithms)
    candidates.push_back(candidate_of(one, problem, device, us, facts.measured));
  TANDEM_ASSIGN(Choice choice, choose({.who = who,
                                       .algorithm = problem.asked,
                                       .world = problem.world,
                                       .num_hosts = problem.num_hosts,
                                       .device = problem.device,
                                       .is_measured = facts.measured != nullptr},
                                      std::move(candidates)));
  const Entry& algorithm = *std::find_if(algorithms.begin(), algorithms.end(),
                                         [&](const Entry& one) { return one.name == choice.algorithm; });
  const auto notes = notes_of(algorithm);
  TANDEM_TRY(verify_all(problem, algorithm, device));
  // `group` has the ranks of this host.
  const int rank = group.rank() + (problem.num_hosts > 1 ? bootstrap::link_of(group)->place.first_rank() : 0);
  auto built = algorithm.build(problem, rank, device);
  if (problem.checks_nan) {
    TANDEM_TRY(coll::prepare_nan_checks(group, device));
    built.program = program::with_checks(std::move(built.program));
  }
  TANDEM_TRY(coll::open_lanes(built.program.num_lanes, group, device));

  Plan plan;
  plan.algorithm = choice.algorithm;
  plan.reason = choice.reason + facts.reason + notes.reason;
  plan.key = std::move(facts.key);
  plan.label = fmt::format("{} [{}] {} {}", problem.op(), fmt::join(facts.shape, ","),
                           to_string(problem.dtype), to_string(choice.algorithm));
  plan.fingerprint = fmt::format("{} {} {}->{}{}", problem.op(), to_string(problem), to_string(problem.asked),
                                 to_string(choice.algorithm), notes.agreed);
  plan.candidates = std::move(choice.candidates);
  plan.tune_key = std::move(facts.tune_key);
  plan.device = problem.device;
  built.program.label = plan.label;
  built.program.fingerprint = plan.fingerprint;
  plan.bindings = program::Bindings(built.program);
  plan.program = std::move(built.program);
  plan.roots = std::move(built.roots);
  // A recording can make no memory, so the calls before it reserve what it needs.
  if constexpr (requires(Problem p) { p.is_capturing; }) {
    Problem recorded = problem;
    recorded.is_capturing = true;
    if (problem.device.kind == DeviceKind::kCuda)
      plan.recorded_workspace_bytes = algorithm.build(recorded, rank, device).program.memory.workspace_bytes;
  }
  return plan;
}

}  // namespace tandem::fused
