#pragma once

#include <tandem/graph/graph.hpp>
#include <unordered_map>
#include <vector>

#include "graph/passes/memory.hpp"

namespace tandem::graph {

/// The calls of ops of which tandem does not know that they only compute: neither known ones, nor PyTorch's
/// own functional ones. They may change what they take, and all that may lie in the same memory. Nothing that
/// reads or makes such a value is moved across them.
class OpaqueOps {
 public:
  explicit OpaqueOps(Graph& graph);

  using Values = std::vector<const Node*>;  ///< null entries are none

  [[nodiscard]] static bool contains(const Node& node);
  /// Whether it makes the same wherever it stands. Draws of random numbers do not.
  [[nodiscard]] static bool can_move(const Node& node);
  /// The first one behind `node` that may change one of the values, or null.
  [[nodiscard]] Node* first_after(const Node& node, const Values& values) const;
  /// Whether one stands between two nodes, the first before the second.
  [[nodiscard]] bool between(const Node& first, const Node& second, const Values& values) const {
    const Node* const found = first_after(first, values);
    return found != nullptr && Graph::is_before(*found, second);
  }
  /// Whether `node` is one that may change one of the values.
  [[nodiscard]] bool may_change(const Node& node, const Values& values) const;

 private:
  Memory memory_;
  std::unordered_map<std::size_t, std::vector<Node*>> by_memory_;  // in order
};

}  // namespace tandem::graph
