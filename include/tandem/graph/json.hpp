#pragma once

#include <string>
#include <string_view>
#include <tandem/graph/graph.hpp>

namespace tandem::graph {

/// Reads a graph in JSON schema 1 of captured PyTorch programs. The file is
/// `{schema, source, world_size, group, pytorch_fuses, groups, nodes[]}`; the counts and groups may be left
/// out. A node is `{name, op, target, args, kwargs, out, symbolic, constant}`, of which the last two are for
/// nodes that have them. Other keys are ignored.
/// Errors:  kParse with the name of the node. The text may be no JSON. A key may be missing, a type wrong, or
///          a name used twice. No earlier node may have made an argument. A number may exceed 64 bits, a
///          shape 2^62 elements, or the nesting of lists 32. `out` may differ from the hints of `symbolic`.
[[nodiscard]] Result<Graph> import_json(std::string_view text);

/// Writes that schema, one node in each line. What import_json() read of it is written as it was.
[[nodiscard]] std::string export_json(const Graph& graph);

}  // namespace tandem::graph
