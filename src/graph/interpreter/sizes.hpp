#pragma once

#include <optional>

#include "graph/interpreter/interpreter.hpp"

namespace tandem::graph::interpreter {

// Sizes that a program does not know. In one run they are those of the call that was captured: values of no
// dims, which calls see as numbers.

/// The hint of a node that makes a number, if the file has it.
[[nodiscard]] std::optional<HostTensor> hint_of(const graph::Node& node);

/// The number that a value of no dims is, as an argument of a call; nothing for another value.
[[nodiscard]] std::optional<graph::Argument> number_in(const HostTensor& value);

/// The numbers among a program's inputs: their hints, and else the sizes that types state where a call takes
/// them. One that no type states has no value.
[[nodiscard]] Inputs known_sizes(const graph::Graph& program);

}  // namespace tandem::graph::interpreter
