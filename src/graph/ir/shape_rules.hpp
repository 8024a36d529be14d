#pragma once

#include <tandem/base/error.hpp>
#include <tandem/graph/graph.hpp>

namespace tandem::graph {

/// Whether a call makes the shapes and types that follow from its arguments, for the ops that move data
/// between ranks, multiply matrices and change shapes. Its signature has been checked.
/// Errors: kInvalidArgument: "makes [4, 8], need [8, 8]: ...".
[[nodiscard]] Result<void> check_shapes(const Node& node, const GraphHeader& header);

}  // namespace tandem::graph
