#include "graph/interpreter/interpreter.hpp"

#include <algorithm>
#include <tandem/graph/text.hpp>

#include "base/byte_size.hpp"
#include "base/format.hpp"
#include "base/memory_limit.hpp"
#include "base/memory_pages.hpp"
#include "base/try.hpp"
#include "graph/interpreter/memory_errors.hpp"
#include "graph/interpreter/ops.hpp"
#include "graph/interpreter/sizes.hpp"

namespace tandem::graph::interpreter {
namespace {

/// Passes and later ops go by the graph's types: a value of another one is a fault of this node.
Result<void> check_types(const graph::NodeType& type, const Values& values) {
  for (std::size_t i = 0; i < type.tensors.size(); ++i) {
    const auto& need = type.tensors[i];
    if (!need) continue;
    const auto* const got = i < values.size() && values[i] ? &*values[i] : nullptr;
    const bool fits =
        got != nullptr && graph::dtype_of(need->dtype) == got->dtype() &&
        std::equal(need->shape.begin(), need->shape.end(), got->sizes().begin(), got->sizes().end());
    if (fits) continue;
    return failf(ErrorCode::kInvalidArgument, "result {} is {}, but the graph says {}", i,
                 got == nullptr ? "missing" : to_string(got->view()), graph::to_text(*need));
  }
  return {};
}

/// Before the op takes memory for them.
Result<void> check_memory_of(const graph::NodeType& type) {
  std::int64_t num_bytes = 0;
  for (const auto& tensor : type.tensors) {
    const auto dtype = tensor ? graph::dtype_of(tensor->dtype) : std::nullopt;
    if (dtype) num_bytes = add_bytes(num_bytes, multiply_bytes(size_bytes(*dtype), tensor->numel()));
  }
  return num_bytes < kFewBytes ? Result<void>() : check_memory("its result", num_bytes);
}

Result<Values> run(const Op& op, const Call& call) {
  TANDEM_TRY(check_memory_of(call.node().type()));
  TANDEM_ASSIGN(Values values, with_memory_errors([&] { return op.run(call); }));
  TANDEM_TRY(check_types(call.node().type(), values));
  return values;
}

}  // namespace

Result<Values> run_node(const graph::Node& node, const ValueTable& values, const Ranks& ranks) {
  if (auto hint = hint_of(node)) return one(*std::move(hint));
  const Op* const op = find_op(node.target());
  Result<Values> result = fail(ErrorCode::kUnsupported, "cannot be executed");
  if (op != nullptr) result = run(*op, Call(node, values, ranks));
  if (result) return result;
  const Error& error = result.error();
  return failf(error.code(), "node '{}' ({}): {}", node.name(), node.target(), error.text());
}

Result<ValueTable> run_graph(const graph::Graph& graph, const Inputs& inputs, const NodeSet& wanted,
                             const Ranks& ranks) {
  ValueTable values;
  std::map<const graph::Node*, std::size_t> uses_left;
  for (const graph::Node& node : graph.nodes()) {
    uses_left[&node] = node.users().size() + (wanted.contains(&node) ? 1 : 0);
  }
  for (const graph::Node& node : graph.nodes()) {
    if (node.kind() == graph::NodeKind::kCall) {
      TANDEM_ASSIGN(values[&node], run_node(node, values, ranks));
    } else if (const auto input = inputs.find(node.name()); input != inputs.end()) {
      values[&node] = one(input->second);
    }
    for (const graph::Node* input : node.inputs()) {
      if (--uses_left[input] == 0) values.erase(input);
    }
    if (uses_left[&node] == 0) values.erase(&node);
  }
  return values;
}

}  // namespace tandem::graph::interpreter
