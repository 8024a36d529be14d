#pragma once

#include <array>
#include <optional>

#include "graph/interpreter/host_tensor.hpp"

namespace tandem::graph::interpreter {

/// Operands of scaled dot-product attention, [batch, heads, length, size of a head].
struct AttentionInput {
  HostTensor q;
  HostTensor k;  ///< as many heads as q
  HostTensor v;
  bool is_causal = false;
  double scale = 0;  ///< of q * k
  /// Broadcast to [batch, heads, length of q, length of k]: added to the scaled products, or, of bool,
  /// whether a query sees a key.
  std::optional<HostTensor> mask = {};
};

struct AttentionOutput {
  HostTensor out;        ///< [batch, heads, length of q, size of v's head], in the type of q
  HostTensor logsumexp;  ///< f32 [batch, heads, length of q, 1]: of the scaled products, natural
};

/// softmax(scale * q * k^T) * v, computed in f64. Errors: kInvalidArgument for shapes that do not fit.
[[nodiscard]] Result<AttentionOutput> attention(const AttentionInput& input);

/// Gradients of q, k and v, from that of the output; the weights are made again from logsumexp.
[[nodiscard]] Result<std::array<HostTensor, 3>> attention_backward(const AttentionInput& input,
                                                                   const AttentionOutput& output,
                                                                   const HostTensor& grad_out);

}  // namespace tandem::graph::interpreter
