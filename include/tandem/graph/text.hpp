#pragma once

#include <string>
#include <string_view>
#include <tandem/graph/graph.hpp>

namespace tandem::graph {

/// A graph as text, for people and golden tests. parse_text() reads it:
///
///   graph world 2 group "0" source "torch 2.11"
///   fuses "symm_mem.fused_all_gather_matmul.default" 1
///   %a: bfloat16[8, 64] = placeholder
///   %ag: bfloat16[16, 64] = _c10d_functional.all_gather_into_tensor.default(%a, 2, "0")
///   %t: bfloat16[64, 8]{1, 64} = aten.permute.default(%b, [1, 0])
///   %c: bfloat16[64, 8] = aten.clone.default(%t, memory_format=<torch.contiguous_format>)
///   %output: (bfloat16[64, 8]) = output([%c])
///
/// Strides follow in braces if the tensor is not contiguous. A node that makes no tensor has null for a type.
/// A list of types has parentheses. Sizes that the program does not know are symbols with their hints,
/// process groups stand in front of the nodes, and an attribute may have its value:
///
///   group "1" ranks 4 "mesh_dp" "_c10d_functional.all_reduce.default" 2
///   %n: {"s77" 12} = placeholder
///   %x: bfloat16[{"s77" 12}, 64]{64, 1} = placeholder
///   %mask: float32[2] = get_attr "mask" value [0.0, -infinity]
///
/// A name with other characters than letters, digits, dots and underscores has quotes.
[[nodiscard]] std::string to_text(const Graph& graph);
/// The line of one node.
[[nodiscard]] std::string to_text(const Node& node);
/// An argument: `%a`, `[1, 0]`, `<torch.bfloat16>`.
[[nodiscard]] std::string to_text(const Argument& argument);
/// A type: "bfloat16[64, 8]{1, 64}".
[[nodiscard]] std::string to_text(const TensorType& type);

/// Reads the text of a graph.
/// Errors:  kParse with the line and what is wrong there.
[[nodiscard]] Result<Graph> parse_text(std::string_view text);

}  // namespace tandem::graph
