#include "graph/interpreter/attention_ops.hpp"

#include <cmath>
#include <tandem/graph/text.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/interpreter/ops.hpp"
#include "graph/ir/ops.hpp"

namespace tandem::graph::interpreter {
namespace {

constexpr std::size_t kNumAttentionResults = 9;  // output, log-sum-exp, and what random numbers need

using Arguments = std::span<const graph::Argument>;

bool is_null(const graph::Argument& argument) {
  return std::holds_alternative<std::monostate>(argument.value);
}

/// Refuses what the reference has no code for; the two numbers are places.
Result<void> check_options(Arguments arguments, std::size_t bias, std::size_t dropout) {
  if (bias < arguments.size() && !is_null(arguments[bias])) {
    return failf(ErrorCode::kUnsupported, "attention with a bias or mask, {}, cannot be executed",
                 graph::to_text(arguments[bias]));
  }
  if (dropout >= arguments.size() || number_of(arguments[dropout]) == 0.0) return {};
  return failf(ErrorCode::kUnsupported, "attention with dropout {} cannot be executed, only with 0",
               graph::to_text(arguments[dropout]));
}

Result<double> scale_of(const Call& call, const HostTensor& q) {
  if (const auto* named = call.named("scale"); named != nullptr) {
    if (const auto number = number_of(*named)) return *number;
    return failf(ErrorCode::kInvalidArgument, "scale is {}, need a number", graph::to_text(*named));
  }
  return 1 / std::sqrt(static_cast<double>(q.sizes().back()));
}

/// `q` is the place of q; k and v follow.
Result<AttentionInput> input_of(const Call& call, std::size_t q_place, std::size_t causal) {
  TANDEM_ASSIGN(HostTensor q, call.tensor(q_place));
  TANDEM_ASSIGN(HostTensor k, call.tensor(q_place + 1));
  TANDEM_ASSIGN(HostTensor v, call.tensor(q_place + 2));
  TANDEM_ASSIGN(const bool is_causal, call.flag_or(call.argument(causal), false));
  if (q.sizes().empty()) return failf(ErrorCode::kInvalidArgument, "attention of a number");
  TANDEM_ASSIGN(const double scale, scale_of(call, q));
  return AttentionInput{std::move(q), std::move(k), std::move(v), is_causal, scale};
}

// (q, k, v, bias, log-sum-exp wanted, dropout, causal, mask wanted)
Result<void> check_forward(Arguments arguments) {
  return check_options(arguments, 3, 5);
}

Result<Values> forward(const Call& call) {
  TANDEM_ASSIGN(const AttentionInput input, input_of(call, 0, 6));
  TANDEM_ASSIGN(AttentionOutput output, attention(input));
  Values values(kNumAttentionResults);
  values[0] = std::move(output.out);
  values[1] = std::move(output.logsumexp);
  // Seed and offset of a generator that nobody asks, without dropout.
  values[6] = values[7] = HostTensor({}, DType::kI64);
  return values;
}

// (gradient, q, k, v, out, log-sum-exp, seed, offset, bias, ..., dropout, causal)
Result<void> check_backward(Arguments arguments) {
  return check_options(arguments, 8, 13);
}

Result<Values> backward(const Call& call) {
  TANDEM_ASSIGN(const HostTensor grad, call.tensor(0));
  TANDEM_ASSIGN(const AttentionInput input, input_of_backward(call));
  TANDEM_ASSIGN(HostTensor out, call.tensor(4));
  TANDEM_ASSIGN(HostTensor logsumexp, call.tensor(5));
  TANDEM_ASSIGN(auto grads, attention_backward(input, {std::move(out), std::move(logsumexp)}, grad));
  return Values(grads.begin(), grads.end());
}

Result<void> check_with_random_state(Arguments arguments) {
  const auto* const op = arguments.empty() ? nullptr : std::get_if<graph::Repr>(&arguments.front().value);
  if (op != nullptr && op->text == graph::op::kAttention) return check_forward(arguments.subspan(1));
  return failf(ErrorCode::kUnsupported, "the state of a generator for {} cannot be executed, only for {}",
               arguments.empty() ? "nothing" : graph::to_text(arguments.front()), graph::op::kAttention);
}

/// An op with the state of a generator, which is not asked: dropout is 0.
Result<Values> with_random_state(const Call& call) {
  return forward(call.without_first());
}

constexpr Op kOps[] = {
    {graph::op::kAttention, forward, check_forward},
    {graph::op::kAttentionBackward, backward, check_backward},
    {graph::op::kWithRngState, with_random_state, check_with_random_state},
};

}  // namespace

Result<AttentionInput> input_of_backward(const Call& call) {
  return input_of(call, 1, 14);
}

std::span<const Op> attention_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
