#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <tandem/graph/graph.hpp>

namespace tandem::graph {

/// A rewriting of a graph that leaves what it computes as it was.
struct Pass {
  std::string_view name;  ///< "merge-collectives"
  Result<void> (*run)(Graph& graph);
};

/// All passes, in the order in which they run.
[[nodiscard]] std::span<const Pass> all_passes();

/// Runs passes one after the other and verifies the graph after each; `after`, if there is one, then sees it.
/// Errors: the pass's, and verify()'s with the pass's name, which is a bug of that pass (kInternal).
[[nodiscard]] Result<void> run_passes(
    Graph& graph, std::span<const Pass> passes,
    const std::function<void(const Pass& pass, const Graph& graph)>& after = {});

/// A collective along dim 0, and the split and cat with which PyTorch moves another dim there and back,
/// become one node that names the dim:
///
///   %g = all_gather_into_tensor(%a, 2, "0")        %g = tandem.all_gather.default(%a, 1, 2, "0")
///   %w = wait_tensor(%g)
///   %s = split(%w, 4)                         ->
///   %x, %y = %s[0], %s[1]
///   %c = cat([%x, %y], 1)
///
/// Also where the pieces are cast to bytes and back around the cat, and where the result of a reduce-scatter
/// is saved before its wait. A gather whose value is used in the order of dim 0 as well keeps its ladder.
[[nodiscard]] Result<void> merge_collectives(Graph& graph);

/// Gathers of the same shard along the same dim become one:
///
///   %g = tandem.all_gather.default(%a, 0, 2, "0")      %g = tandem.all_gather.default(%a, 0, 2, "0")
///   %h = tandem.all_gather.default(%a, 0, 2, "0")  ->  my.op(%g, %g)
///   my.op(%g, %h)
[[nodiscard]] Result<void> merge_equal_gathers(Graph& graph);

/// Chains of reshapes, and of permutes, become one; what changes nothing goes:
///
///   %v = aten.reshape.default(%g, [1, 64, 256])    %w = aten.reshape.default(%g, [64, 256])
///   %w = aten.reshape.default(%v, [64, 256])   ->  %u = aten.permute.default(%b, [1, 0, 2])
///   %t = aten.permute.default(%b, [1, 2, 0])
///   %u = aten.permute.default(%t, [0, 2, 1])
[[nodiscard]] Result<void> fold_views(Graph& graph);

}  // namespace tandem::graph
