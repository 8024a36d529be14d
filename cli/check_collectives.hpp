#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collective.hpp"
#include "sweep.hpp"

namespace tandem::cli {

/// All cases of a collective for these types: dims, sizes, sums and means, and kinds of memory.
[[nodiscard]] std::vector<CollectiveCase> cases_of(CollectiveOp op, const SweepLists& lists);
/// Their number for all numbers of ranks, in words: "5 dtypes x 20 cases x 5 numbers of ranks = 500".
[[nodiscard]] std::string product_in_words(CollectiveOp op, const SweepLists& lists);

/// Runs a case and compares its output.
[[nodiscard]] harness::Wrong check_case(const CollectiveCase& c, const Session& session);

}  // namespace tandem::cli
