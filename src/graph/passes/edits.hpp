#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/graph/graph.hpp>
#include <vector>

namespace tandem::graph {

// What passes do to a graph again and again.

/// Erases a node that nobody uses, and what nobody uses then; placeholders and ops that tandem does not know
/// stay.
[[nodiscard]] Result<void> erase_unused(Graph& graph, Node& node);

/// All that use a node use `instead`; the node goes, and `heir` has its name if nobody needs it any more.
[[nodiscard]] Result<void> replace_by(Graph& graph, Node& node, Node& instead, Node& heir);

/// Whether one node takes it.
[[nodiscard]] inline bool is_used_once(const Node& node) {
  return node.users().size() == 1;
}
/// The one node that takes it; null where none or several do.
[[nodiscard]] inline Node* only_user(const Node& node) {
  return is_used_once(node) ? node.users().front() : nullptr;
}

/// "all_gather_into_tensor" of "_c10d_functional.all_gather_into_tensor.default".
[[nodiscard]] inline std::string_view short_name(std::string_view target) {
  const std::size_t begin = target.find('.') + 1;
  return target.substr(begin, target.rfind('.') - begin);
}

/// The argument of a reshape to `shape` before `place`. In a program whose sizes are symbolic, those but the
/// last are whatever is left, or those that `like` was reshaped to; nullopt where neither says them.
[[nodiscard]] std::optional<Argument::List> sizes_for(const Graph& graph,
                                                      const std::vector<std::int64_t>& shape,
                                                      const Node* like, const Node& place);

/// `node` itself, or a reshape of it before `place`, to sizes_for() it. Contiguous.
[[nodiscard]] Result<Node*> reshaped(Graph& graph, Node& place, Node& node,
                                     const std::vector<std::int64_t>& shape, const Node* like = nullptr);

/// `node` itself, or a contiguous copy of it before `place`: views of other strides than those that a program
/// was captured with would make its types wrong.
[[nodiscard]] Result<Node*> contiguous(Graph& graph, Node& place, Node& node);

/// Item `idx` of a node that makes several.
[[nodiscard]] Result<Node*> item_of(Graph& graph, Node& place, Node& node, std::int64_t idx);

/// `leading` sizes and a last one.
[[nodiscard]] std::vector<std::int64_t> with_last(std::vector<std::int64_t> leading, std::int64_t last);

[[nodiscard]] TensorType contiguous_type(std::vector<std::int64_t> shape, std::string_view dtype);
/// Contiguous with `dim` outermost and the rest in order: how fused gathers lay out what they make.
[[nodiscard]] TensorType type_with_outermost(std::vector<std::int64_t> shape, std::size_t dim,
                                             std::string_view dtype);

[[nodiscard]] Argument::List list_of(const std::vector<std::int64_t>& integers);

}  // namespace tandem::graph
