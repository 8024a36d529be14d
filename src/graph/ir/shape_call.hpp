#pragma once

#include <cstdint>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/graph/graph.hpp>
#include <vector>

#include "base/format.hpp"

namespace tandem::graph {

// What the rules about shapes share.

using Shape = std::vector<std::int64_t>;

/// What a rule sees.
struct Call {
  const Node& node;
  int world_size;
  std::string_view group;  ///< the graph's

  [[nodiscard]] const TensorType& input(std::size_t idx) const {
    return *node.arguments()[idx].node()->type().tensor();
  }
  [[nodiscard]] std::int64_t integer(std::size_t idx, std::int64_t otherwise = 0) const {
    return idx < node.arguments().size() ? node.arguments()[idx].integer().value_or(otherwise) : otherwise;
  }
  /// kUnknown for one that nobody knows.
  [[nodiscard]] Shape integers(std::size_t idx) const {
    Shape found;
    for (const Argument& one : *node.arguments()[idx].list())
      found.push_back(one.integer().value_or(kUnknown));
    return found;
  }
  static constexpr std::int64_t kUnknown = -2;
};

inline std::string listed(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

/// A dim that may count from the end, as one that does not. Errors: beyond the ends.
inline Result<std::size_t> dim_of(std::int64_t dim, std::size_t num_dims) {
  const auto count = static_cast<std::int64_t>(num_dims);
  if (dim < -count || dim >= count) {
    return failf(ErrorCode::kInvalidArgument, "dim {} of a tensor of {} dims", dim, num_dims);
  }
  return static_cast<std::size_t>(dim < 0 ? dim + count : dim);
}

inline Result<void> need(const Call& call, const Shape& shape) {
  const TensorType* const made = call.node.type().tensor();
  if (made == nullptr) return failf(ErrorCode::kInvalidArgument, "makes no tensor, need {}", listed(shape));
  if (made->shape == shape) return {};
  return failf(ErrorCode::kInvalidArgument, "makes {}, need {}", listed(made->shape), listed(shape));
}

/// What `call` gathers of shards like this one along `dim`, from `world` ranks.
/// Errors:  more than 2^62; a gather_size of other shards.
[[nodiscard]] Result<Shape> gathered(const Call& call, Shape shard, std::size_t dim, std::int64_t world);
/// What of `whole` a rank gets along `dim`; the last ones' parts are padded to that.
[[nodiscard]] Shape scattered(Shape whole, std::size_t dim, std::int64_t world);

using ShapeRule = Result<void> (*)(const Call& call);

/// fused_shape_rules.cpp. `call` gathers or scatters in the graph's one group.
[[nodiscard]] Result<void> check_fused_all_gather(const Call& call);
[[nodiscard]] Result<void> check_fused_all_gather_scaled(const Call& call);
[[nodiscard]] Result<void> check_fused_reduce_scatter(const Call& call);
[[nodiscard]] Result<void> check_fused_reduce_scatter_scaled(const Call& call);
[[nodiscard]] Result<void> check_fused_all_reduce(const Call& call);

}  // namespace tandem::graph
