#pragma once

#include <tandem/graph/graph.hpp>

namespace tandem::graph {

/// Whether a value is the same on all ranks: computed from constants and results of collectives of the whole
/// group alone. Inputs of one element are taken for such, unless they are gathered: the scale of a tensor of
/// which each rank has a part.
[[nodiscard]] bool is_replicated(const Node& node, const GraphHeader& header);

}  // namespace tandem::graph
