#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tandem/graph/graph.hpp>

namespace tandem::graph {

// Collectives of several tensors at once, by the names of PyTorch.

/// The op that does the same with one tensor, if this node's takes several; else nothing.
[[nodiscard]] std::optional<std::string_view> single_of(const Node& node);
/// The op that does the same with several tensors, if this node's takes one; else nothing.
[[nodiscard]] std::optional<std::string_view> coalesced_of(const Node& node);

/// What a report calls the collective of tensor `idx` of `node`: "c[0]".
[[nodiscard]] std::string coalesced_name(const Node& node, std::size_t idx);
/// Of such a name "c", the node's; nothing for other names.
[[nodiscard]] std::optional<std::string> name_of_coalesced(std::string_view name);

}  // namespace tandem::graph
