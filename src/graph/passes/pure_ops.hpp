#pragma once

#include <string_view>
#include <tandem/graph/graph.hpp>

namespace tandem::graph {

/// Why a call of an op that tandem does not execute changes nothing that a collective or a product reads, so
/// that these may pass it: "only computes". Empty where nobody knows that.
[[nodiscard]] std::string_view why_pure(const Node& node);

}  // namespace tandem::graph
