#pragma once

#include "graph/interpreter/attention.hpp"
#include "graph/interpreter/call.hpp"

namespace tandem::graph::interpreter {

/// Whether a node computes the gradients of an attention: (gradient, q, k, v, output, log-sum-exp, ...).
[[nodiscard]] bool is_attention_backward(const graph::Node& node);

/// What the attention was computed from whose gradient the call computes.
[[nodiscard]] Result<AttentionInput> input_of_backward(const Call& call);

}  // namespace tandem::graph::interpreter
