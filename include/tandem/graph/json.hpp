#pragma once

#include <string>
#include <string_view>
#include <tandem/graph/graph.hpp>

namespace tandem::graph {

/// A graph in the JSON schema 1 of captured PyTorch programs: `{schema, source, world_size, group, nodes[]}`,
/// a node `{name, op, target, args, kwargs, out}`. Other keys at the top are ignored.
/// Errors:  kParse with the name of the node: no JSON, a missing key, a wrong type, a name twice, an argument
///          that no earlier node made, a number beyond 64 bits, a shape beyond 2^62 elements, lists nested
///          deeper than 32.
[[nodiscard]] Result<Graph> import_json(std::string_view text);

/// The same schema, one node a line.
[[nodiscard]] std::string export_json(const Graph& graph);

}  // namespace tandem::graph
