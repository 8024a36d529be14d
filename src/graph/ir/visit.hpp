#pragma once

#include <tandem/graph/graph.hpp>

namespace tandem::graph {

/// Calls `visit` with every argument that is a node, in order of appearance.
template <class Arg, class Visit>
void for_each_node(Arg& argument, const Visit& visit) {
  if (argument.node() != nullptr) visit(argument);
  if (auto* list = std::get_if<Argument::List>(&argument.value); list != nullptr) {
    for (auto& one : *list) for_each_node(one, visit);
  }
}

}  // namespace tandem::graph
