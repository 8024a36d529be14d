#pragma once

#include <tandem/base/error.hpp>
#include <tandem/graph/graph.hpp>

namespace tandem::graph {

/// Whether the arguments of a call are as many and of the kinds that its op takes, and whether it makes a
/// tensor where its op does; anything is right for an op that tandem does not know.
/// Errors: kInvalidArgument: "argument 1 is 8, need a tensor".
[[nodiscard]] Result<void> check_signature(const Node& node);

/// Whether tandem knows the op of a call: it then computes from its arguments alone and changes none of them.
[[nodiscard]] bool is_known_op(const Node& node);

}  // namespace tandem::graph
