#pragma once

#include <tandem/bootstrap/launcher.hpp>

namespace tandem::testing {

/// Runs the registered function that the arguments name; the process's exit code.
[[nodiscard]] int run_rank(const RankContext& context, int argc, char** argv);

}  // namespace tandem::testing
