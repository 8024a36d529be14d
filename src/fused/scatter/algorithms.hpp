#pragma once

#include <span>
#include <tandem/base/support.hpp>
#include <tandem/device/device.hpp>

#include "fused/call/choose.hpp"
#include "fused/scatter/builder.hpp"
#include "fused/scatter/problem.hpp"

namespace tandem::fused {

struct ScatterProgram {
  program::Program program;
  ScatterRoots roots;
};

/// One way to run a scatter or an all-reduce. All that is known of an algorithm stands in one of these.
struct ScatterAlgorithm {
  Algorithm name;
  /// The same on every rank: it looks at what they have agreed on only.
  Support (*can_run)(const ScatterProblem& problem, const Device& device);
  double Prediction::*predicted_us;
  ScatterProgram (*build)(const ScatterProblem& problem, int rank, const Device& device);
};
[[nodiscard]] std::span<const ScatterAlgorithm> scatter_algorithms();
/// Of problems that give all.
[[nodiscard]] std::span<const ScatterAlgorithm> all_reduce_algorithms();

// Each in the file of its name.
[[nodiscard]] ScatterProgram build_serial_scatter(const ScatterProblem& problem, int rank,
                                                  const Device& device);
[[nodiscard]] ScatterProgram build_pipelined_scatter(const ScatterProblem& problem, int rank,
                                                     const Device& device);
/// `serial` and `pipelined` of a group on several hosts.
[[nodiscard]] ScatterProgram build_scatter_across_hosts(const ScatterProblem& problem, Algorithm algorithm,
                                                        int rank);
[[nodiscard]] ScatterProgram build_native_scatter(const ScatterProblem& problem, int rank,
                                                  const Device& device);
/// How many rounds build_pipelined_scatter() cuts an all-reduce in that does not push.
[[nodiscard]] int choose_rounds(const ScatterProblem& problem);

}  // namespace tandem::fused
