#pragma once

#include <cstddef>
#include <tandem/graph/graph.hpp>
#include <vector>

namespace tandem::graph {

/// Whether an op makes new memory, always; a given value is its own memory.
[[nodiscard]] bool makes_memory(const Node& node);

/// Which values of a program may lie in the same memory: those of an op that may return a view of what it
/// takes, and all that an opaque op takes and makes. An op that is not known to make new memory may return a
/// view.
class Memory {
 public:
  Memory() = default;
  /// Of the nodes as they are now. It stays right where passes change the graph.
  explicit Memory(const Graph& graph);

  /// The numbers of the memories that a node's value may lie in; none for new memory of a newer node.
  [[nodiscard]] std::vector<std::size_t> of(const Node& node) const;
  /// Whether the node is newer than this.
  [[nodiscard]] bool is_new(const Node& node) const { return node.id() >= roots_.size(); }

 private:
  std::vector<std::size_t> roots_;  // by a node's id
};

}  // namespace tandem::graph
