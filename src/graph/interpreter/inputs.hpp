#pragma once

#include "graph/interpreter/interpreter.hpp"

namespace tandem::graph::interpreter {

/// Values for all placeholders of a program, as execute() describes them. Collective: what follows from the
/// program's own attention is computed on all ranks together.
/// Errors: those of the nodes that lead to an attention's q, k and v.
[[nodiscard]] Result<Inputs> make_inputs(const graph::Graph& program, std::uint64_t seed, const Ranks& ranks);

}  // namespace tandem::graph::interpreter
