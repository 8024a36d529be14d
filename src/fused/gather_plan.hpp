#pragma once

#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>

#include "fused/choose.hpp"
#include "fused/gather_problem.hpp"
#include "fused/op_memory.hpp"

namespace tandem::fused {

/// What a gather op's plan is made from besides the problem.
struct GatherPlanning {
  std::string_view op;                 ///< "all_gather_matmul"
  std::string_view agreed = {};        ///< what else the ranks have to have in common
  std::int64_t beside_bytes = 0;       ///< of a chunk: what travels beside a
  Support native = Workload{}.native;  ///< whether `native` can run; the same on every rank
  std::string_view native_note = {};   ///< what the report adds if it does
};
/// Decides on the algorithm and puts it into words.
[[nodiscard]] Result<OpPlan> decide(const GatherProblem& problem, const GatherPlanning& planning,
                                    Group& group, Device& device);

}  // namespace tandem::fused
