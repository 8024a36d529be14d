#pragma once

#include <string>
#include <vector>

#include "harness/operands.hpp"
#include "harness/problem.hpp"

namespace tandem::cli {

/// Scales of f8 operands, in files.
struct ScaleFiles {
  std::string a;
  std::vector<std::string> b;
  [[nodiscard]] bool are_given() const { return !a.empty() || !b.empty(); }
};

/// Reads them into `tensors` as the problem has them. Sets problem.scales by their sizes, unless it is set.
/// What has to stay in memory is added to `held`. Throws exit 2.
void read_scales(const ScaleFiles& files, harness::Problem& problem, harness::WholeTensors& tensors,
                 std::vector<Tensor>& held);

}  // namespace tandem::cli
