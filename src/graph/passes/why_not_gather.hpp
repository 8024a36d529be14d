#pragma once

#include "graph/passes/gather_match.hpp"
#include "graph/passes/row_local.hpp"

namespace tandem::graph {

/// Why no product can run while `gather` does: the reason that comes nearest to a fusion.
[[nodiscard]] Refusal why_not_gather(Node& gather, const RowLocal& local, const OpaqueOps& opaque);

}  // namespace tandem::graph
