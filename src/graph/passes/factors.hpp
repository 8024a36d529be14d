#pragma once

#include <cstddef>
#include <optional>
#include <tandem/graph/graph.hpp>

namespace tandem::graph {

/// What multiplies or divides each row of a tensor by a number: the same for all rows, or one for each.
struct Factor {
  Node* node = nullptr;
  std::size_t value = 0;   ///< the argument that is multiplied
  std::size_t factor = 1;  ///< the other one
  Node* column = nullptr;  ///< of numbers; null where it is one number
  [[nodiscard]] Node& source() const { return *node->arguments()[value].node(); }
};

/// nullopt for other nodes, and where the result has another type.
[[nodiscard]] std::optional<Factor> as_factor(Node& node);

/// Whether `node` multiplies each row of `from`, or each column, by a number: what an operand of a product
/// could be multiplied by instead. Not in f16, whose range that could exceed.
[[nodiscard]] bool is_multiple(const Node& node, const Node& from);

}  // namespace tandem::graph
