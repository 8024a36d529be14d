#pragma once

#include <set>
#include <tandem/graph/graph.hpp>
#include <unordered_map>
#include <vector>

#include "graph/passes/opaque_ops.hpp"

namespace tandem::graph {

/// What is computed from a gathered tensor row by row: casts, with their scales, and views that keep rows
/// whole. Such a value of the gathered tensor is the gathered value of the shard, with rows in the same
/// order.
///
///   %g = tandem.all_gather.default(%x, ...)            the source
///   %m = aten.amax.default(%g, [-1], true)             a column
///   %s = aten.mul.Tensor(%g, %m)                       as wide as the source
///   %v = aten.reshape.default(%s, [64, 128])           a view of that
///
/// Where the last dim is gathered a rank has parts of rows only: there, no column comes of them. Behind an
/// opaque op that may change one of them, the shard or its values may be others.
class RowLocal {
 public:
  RowLocal(Node& gather, const GraphHeader& header, const OpaqueOps& opaque);

  [[nodiscard]] bool contains(const Node& node) const { return is_view_.contains(&node); }
  /// Whether it is the source, or a view of it.
  [[nodiscard]] bool is_view(const Node& node) const {
    const auto found = is_view_.find(&node);
    return found != is_view_.end() && found->second;
  }
  /// In the order of the graph, the source first.
  [[nodiscard]] const std::vector<Node*>& nodes() const { return nodes_; }

 private:
  [[nodiscard]] bool follows(const Node& node) const;
  [[nodiscard]] bool is_element_wise(const Node& node) const;
  [[nodiscard]] bool fits(const Argument& argument, const Node& node) const;

  const GraphHeader& header_;
  bool has_whole_rows_;
  std::vector<Node*> nodes_;
  std::unordered_map<const Node*, bool> is_view_;
};

/// One of the element-wise ops that casts are made of.
[[nodiscard]] bool is_cast_op(const Node& node);
/// Whether a node has the elements of its input, in their order: reshapes, and copies.
[[nodiscard]] bool is_view_op(const Node& node);
/// Whether such a one keeps the last dim, and so each row.
[[nodiscard]] bool keeps_rows(const Node& view);
/// What is seen by views that keep each row.
[[nodiscard]] Node* below_views(Node* node);

}  // namespace tandem::graph
