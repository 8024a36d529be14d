#pragma once

#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/graph/graph.hpp>

namespace tandem::graph {

/// Whether tandem knows the op of a call.
[[nodiscard]] bool is_known_op(std::string_view target);

/// Whether the arguments of a call are as many and of the kinds that its op takes; any are right for an op
/// that tandem does not know.
/// Errors: kInvalidArgument: "argument 1 is 8, need a tensor".
[[nodiscard]] Result<void> check_signature(const Node& node);

}  // namespace tandem::graph
