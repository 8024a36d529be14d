#pragma once

#include "graph/interpreter/attention.hpp"
#include "graph/interpreter/call.hpp"

namespace tandem::graph::interpreter {

/// What the attention was computed from whose gradient the call computes.
[[nodiscard]] Result<AttentionInput> input_of_backward(const Call& call);

}  // namespace tandem::graph::interpreter
