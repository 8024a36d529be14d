#pragma once

#include <string>
#include <tandem/graph/graph.hpp>

namespace tandem::cli {

/// A captured program from a file, verified: JSON as captured, or the text form, which begins with its
/// keyword. Throws exit 2 for a file that holds none.
[[nodiscard]] graph::Graph read_graph(const std::string& path);

}  // namespace tandem::cli
