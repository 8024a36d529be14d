#pragma once

#include <cstdint>
#include <optional>
#include <tandem/graph/graph.hpp>
#include <vector>

namespace tandem::graph::interpreter {

/// What a program does with a placeholder, directly or behind views and gathers.
struct Use {
  bool is_scale = false;    ///< values were multiplied by it to become f8: its reciprocal is taken
  bool is_inverse = false;  ///< of a scale: a scaled product takes it
  bool is_positive =
      false;  ///< a maximum of absolute values, a divisor, or what a root or logarithm is taken of
  bool is_gathered = false;
  /// Of f8: the inverse scales that scaled products take beside it.
  std::vector<const graph::Node*> inverses;
  /// How many terms the sums have that products make with it as a weight, those over ranks included: the
  /// geometric mean over such products. 0: there is none.
  double num_terms = 0;
  /// Of integers: what they have to be below, as indices.
  std::optional<std::int64_t> index_bound;
};

[[nodiscard]] Use use_of(const graph::Node& placeholder, int world_size);

/// The node that is the argument in this place, or null.
[[nodiscard]] const graph::Node* node_at(const graph::Node& node, std::size_t idx);

}  // namespace tandem::graph::interpreter
