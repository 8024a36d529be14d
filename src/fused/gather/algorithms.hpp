#pragma once

#include <span>
#include <string>
#include <tandem/base/support.hpp>
#include <tandem/device/device.hpp>

#include "fused/call/choose.hpp"
#include "fused/gather/builder.hpp"
#include "fused/gather/problem.hpp"

namespace tandem::fused {

struct GatherProgram {
  program::Program program;
  GatherRoots roots;
};

/// One way to run a gather. All that is known of an algorithm stands in one of these.
struct GatherAlgorithm {
  Algorithm name;
  /// The same on every rank: it looks at what they have agreed on only.
  Support (*can_run)(const GatherProblem& problem, const Device& device);
  double Prediction::*predicted_us;
  GatherProgram (*build)(const GatherProblem& problem, int rank, const Device& device);
  Notes (*notes)(const GatherProblem& problem, const GatherCall& call, const Device& device);
};
[[nodiscard]] std::span<const GatherAlgorithm> gather_algorithms();

// Each in the file of its name.
[[nodiscard]] GatherProgram build_serial_gather(const GatherProblem& problem, int rank, const Device& device);
[[nodiscard]] GatherProgram build_pipelined_gather(const GatherProblem& problem, int rank,
                                                   const Device& device);
/// `serial` and `pipelined` of a group on several hosts.
[[nodiscard]] GatherProgram build_gather_across_hosts(const GatherProblem& problem, Algorithm algorithm,
                                                      int rank);
[[nodiscard]] GatherProgram build_native_gather(const GatherProblem& problem, int rank, const Device& device);
[[nodiscard]] Notes native_gather_notes(const GatherProblem& problem, const GatherCall& call,
                                        const Device& device);
/// Of this rank's b number i, where a is there: `planned`, or the agreed one, with what is the rank's own.
[[nodiscard]] gemm::Product own_product(gemm::Product planned, const GatherProblem& problem,
                                        const GatherCall& call, int i);
/// Fills in what native would make of the problem on this rank.
void ask_native(const GatherCall& call, const Device& device, GatherProblem& problem);

}  // namespace tandem::fused
