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

constexpr std::string_view kCpuBackward = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default";

using Arguments = std::span<const graph::Argument>;

/// Refuses what the reference has no code for: dropout, whose rate is in this place.
Result<void> check_options(Arguments arguments, std::size_t dropout) {
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

/// `q_place` is the place of q; k and v follow. A mask is null where there is none.
Result<AttentionInput> input_of(const Call& call, std::size_t q_place, std::size_t causal,
                                const graph::Argument* mask) {
  TANDEM_ASSIGN(HostTensor q, call.tensor(q_place));
  TANDEM_ASSIGN(HostTensor k, call.tensor(q_place + 1));
  TANDEM_ASSIGN(HostTensor v, call.tensor(q_place + 2));
  TANDEM_ASSIGN(const bool is_causal, call.flag_or(call.argument(causal), false));
  if (q.sizes().empty()) return failf(ErrorCode::kInvalidArgument, "attention of a number");
  TANDEM_ASSIGN(const double scale, scale_of(call, q));
  TANDEM_ASSIGN(Values masks, call.optional_tensors_in(mask, 1));
  return AttentionInput{std::move(q), std::move(k), std::move(v), is_causal, scale, std::move(masks[0])};
}

// (q, k, v, mask, log-sum-exp wanted, dropout, causal, mask wanted)
Result<void> check_forward(Arguments arguments) {
  return check_options(arguments, 5);
}

Result<Values> forward(const Call& call) {
  TANDEM_ASSIGN(const AttentionInput input, input_of(call, 0, 6, call.argument(3)));
  TANDEM_ASSIGN(AttentionOutput output, attention(input));
  Values values(kNumAttentionResults);
  values[0] = std::move(output.out);
  values[1] = std::move(output.logsumexp);
  // Seed and offset of a generator that nobody asks, without dropout.
  values[6] = values[7] = HostTensor({}, DType::kI64);
  return values;
}

// (gradient, q, k, v, out, log-sum-exp, seed, offset, mask, ..., dropout, causal)
Result<void> check_backward(Arguments arguments) {
  return check_options(arguments, 13);
}

Result<Values> backward(const Call& call) {
  TANDEM_ASSIGN(const HostTensor grad, call.tensor(0));
  TANDEM_ASSIGN(const AttentionInput input, input_of_backward(call));
  TANDEM_ASSIGN(HostTensor out, call.tensor(4));
  TANDEM_ASSIGN(HostTensor logsumexp, call.tensor(5));
  TANDEM_ASSIGN(auto grads, attention_backward(input, {std::move(out), std::move(logsumexp)}, grad));
  return Values(grads.begin(), grads.end());
}

// On CPUs: (q, k, v, dropout, causal) and a mask by name -> [output, log-sum-exp without the dim of 1]
Result<void> check_cpu_forward(Arguments arguments) {
  return check_options(arguments, 3);
}

Result<Values> cpu_forward(const Call& call) {
  TANDEM_ASSIGN(const AttentionInput input, input_of(call, 0, 4, call.named("attn_mask")));
  TANDEM_ASSIGN(const AttentionOutput output, attention(input));
  Dims row_sizes = output.logsumexp.sizes();
  row_sizes.erase(3);
  return Values{output.out, output.logsumexp.with_sizes(row_sizes)};
}

// (gradient, q, k, v, out, log-sum-exp, dropout, causal) and a mask by name
Result<void> check_cpu_backward(Arguments arguments) {
  return check_options(arguments, 6);
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
    {"aten._scaled_dot_product_flash_attention_for_cpu.default", cpu_forward, check_cpu_forward},
    {kCpuBackward, backward, check_cpu_backward},
    {graph::op::kWithRngState, with_random_state, check_with_random_state},
};

}  // namespace

bool is_attention_backward(const graph::Node& node) {
  return node.is_call_of(graph::op::kAttentionBackward) || node.is_call_of(kCpuBackward);
}

Result<AttentionInput> input_of_backward(const Call& call) {
  if (call.node().is_call_of(kCpuBackward)) return input_of(call, 1, 7, call.named("attn_mask"));
  return input_of(call, 1, 14, call.argument(8));
}

std::span<const Op> attention_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
