#pragma once

#include <tandem/graph/graph.hpp>
#include <vector>

namespace tandem::graph {

/// The calls of ops of which tandem does not know that they only compute: neither known ones, nor PyTorch's
/// own functional ones. Nothing is moved across them: they may change what they take, or more.
class OpaqueOps {
 public:
  explicit OpaqueOps(Graph& graph);

  [[nodiscard]] static bool contains(const Node& node);
  /// The first one behind `node`, or null.
  [[nodiscard]] Node* first_after(const Node& node) const;
  /// Whether one stands between two nodes, the first before the second.
  [[nodiscard]] bool between(const Node& first, const Node& second) const;

 private:
  std::vector<Node*> nodes_;  // in order; they stay where they are
};

}  // namespace tandem::graph
