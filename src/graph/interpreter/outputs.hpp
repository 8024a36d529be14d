#pragma once

#include <tandem/graph/interpreter/execute.hpp>

#include "graph/interpreter/interpreter.hpp"

namespace tandem::graph::interpreter {

/// The nodes that the output node names, in its order; null where it names none. Behind them come writes to
/// inputs, which a program makes too.
[[nodiscard]] std::vector<const graph::Node*> outputs_of(const graph::Graph& graph);

/// Nodes whose values output_results() looks at.
[[nodiscard]] NodeSet wanted_of(const graph::Graph& graph);

/// The outputs of a program: each has to be finite. One of several elements that is the same number
/// everywhere is not compared, unless the program hands an input through, or rounds it to whole powers.
[[nodiscard]] std::vector<OutputResult> describe_outputs(const graph::Graph& graph, const ValueTable& values);

/// How far each output of a rewritten program is from the program's own.
void compare_outputs(const graph::Graph& program, const ValueTable& want, const graph::Graph& rewritten,
                     const ValueTable& got, std::vector<OutputResult>& results);

/// `got` against `want`. The bound is relative to the largest |want|, or to `scale` if that is more.
[[nodiscard]] Difference compare(const HostTensor& got, const HostTensor& want, double relative_bound,
                                 double scale = 0);

/// One step of a type at 1.
[[nodiscard]] double step_of(DType dtype);

}  // namespace tandem::graph::interpreter
