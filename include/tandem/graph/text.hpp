#pragma once

#include <string>
#include <string_view>
#include <tandem/graph/graph.hpp>

namespace tandem::graph {

/// A graph for people and golden tests; parse_text() reads it back:
///
///   graph world 2 group "0" source "torch 2.11"
///   fuses "symm_mem.fused_all_gather_matmul.default" 1
///   %a: bfloat16[8, 64] = placeholder
///   %ag: bfloat16[16, 64] = _c10d_functional.all_gather_into_tensor.default(%a, 2, "0")
///   %t: bfloat16[64, 8]{1, 64} = aten.permute.default(%b, [1, 0])
///   %c: bfloat16[64, 8] = aten.clone.default(%t, memory_format=<torch.contiguous_format>)
///   %output: (bfloat16[64, 8]) = output([%c])
///
/// Strides stand in braces where the tensor is not contiguous, null where a node makes no tensor, a list of
/// types in parentheses, and a name in quotes where it is more than letters, digits, dots and underscores.
[[nodiscard]] std::string to_text(const Graph& graph);
/// One node's line.
[[nodiscard]] std::string to_text(const Node& node);
/// `%a`, `[1, 0]`, `<torch.bfloat16>`.
[[nodiscard]] std::string to_text(const Argument& argument);
/// "bfloat16[64, 8]{1, 64}".
[[nodiscard]] std::string to_text(const TensorType& type);

/// Errors:  kParse with the line and what is wrong there.
[[nodiscard]] Result<Graph> parse_text(std::string_view text);

}  // namespace tandem::graph
