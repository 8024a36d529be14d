#pragma once

#include <tandem/base/error.hpp>
#include <tandem/graph/graph.hpp>
#include <unordered_map>

#include "graph/passes/products.hpp"
#include "graph/passes/row_local.hpp"

namespace tandem::graph {

/// Computes from a gather's shard what a program computes from its result row by row.
class ShardValues {
 public:
  ShardValues(Graph& graph, Node& gather, const OpaqueOps& opaque)
      : graph_(graph), collective_(as_collective(gather)), local_(gather, graph.header, opaque) {}

  [[nodiscard]] const Collective& collective() const { return collective_; }
  [[nodiscard]] const RowLocal& local() const { return local_; }
  /// The rows of `node`, one of local()'s, that this rank's shard has; each value is made once, right before
  /// the node that it stands for.
  [[nodiscard]] Result<Node*> of(Node& node);

 private:
  [[nodiscard]] Node* known(const Node& node) const;
  Result<void> make(Node& node);

  Graph& graph_;
  Collective collective_;
  RowLocal local_;
  std::unordered_map<const Node*, Node*> made_;
};

}  // namespace tandem::graph
