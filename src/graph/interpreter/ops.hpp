#pragma once

#include <span>
#include <string_view>

#include "graph/interpreter/call.hpp"

namespace tandem::graph::interpreter {

/// How an op of a captured program is computed. All results are rounded once to their type; two runs on the
/// same values give the same bits.
struct Op {
  std::string_view target;
  Result<Values> (*run)(const Call& call);
  /// What of the arguments cannot be executed, as far as it shows without their values. May be null.
  Result<void> (*check)(std::span<const graph::Argument> arguments) = nullptr;
};

/// Null for an op that cannot be executed.
[[nodiscard]] const Op* find_op(std::string_view target);

// The families that find_op() looks through, a file each.
[[nodiscard]] std::span<const Op> elementwise_ops();
[[nodiscard]] std::span<const Op> comparison_ops();
[[nodiscard]] std::span<const Op> activation_ops();
[[nodiscard]] std::span<const Op> creation_ops();
[[nodiscard]] std::span<const Op> reduction_ops();
[[nodiscard]] std::span<const Op> normalisation_ops();
[[nodiscard]] std::span<const Op> shape_ops();
[[nodiscard]] std::span<const Op> size_ops();
[[nodiscard]] std::span<const Op> indexing_ops();
[[nodiscard]] std::span<const Op> product_ops();
[[nodiscard]] std::span<const Op> convolution_ops();
[[nodiscard]] std::span<const Op> attention_ops();
[[nodiscard]] std::span<const Op> collective_ops();
[[nodiscard]] std::span<const Op> fused_gather_ops();
[[nodiscard]] std::span<const Op> fused_scatter_ops();

}  // namespace tandem::graph::interpreter
