#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <tandem/graph/fuse.hpp>
#include <tandem/graph/graph.hpp>

namespace tandem::graph {

/// A rewriting of a graph that leaves what it computes as it was.
struct Pass {
  std::string_view name;  ///< "merge-collectives"
  Result<void> (*run)(Graph& graph, const FuseOptions& options);
};

/// All passes, in the order in which they run.
[[nodiscard]] std::span<const Pass> all_passes();

/// Runs passes one after the other and verifies the graph after each; `after`, if there is one, then sees it.
/// Errors: the pass's, and verify()'s with the pass's name, which is a bug of that pass (kInternal).
[[nodiscard]] Result<void> run_passes(
    Graph& graph, std::span<const Pass> passes,
    const std::function<void(const Pass& pass, const Graph& graph)>& after = {},
    const FuseOptions& options = {});

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

/// With options.share_maxima, where a product's scale alone keeps a gather from being fused: the maximum of
/// what is gathered becomes that of the shards' maxima, known before the gather:
///
///   %g = tandem.all_gather.default(%a, 0, 2, "0")      %g = tandem.all_gather.default(%a, 0, 2, "0")
///   %m = aten.max.default(%g)                      ->  %s = aten.max.default(%a)
///                                                      %r = all_reduce(%s, "max", "0")
///                                                      %m = wait_tensor(%r)
[[nodiscard]] Result<void> share_maxima(Graph& graph, const FuseOptions& options);

/// Casts that need one row at a time, and their scales, move to before the gather, where a product could then
/// run while it does: fewer bytes, or, if the wide value is needed too, the narrow one beside it.
///
///   %g = tandem.all_gather.default(%a, 0, 2, "0")      %n = convert_element_type(%a, <e4m3>)
///   %c = convert_element_type(%g, <e4m3>)          ->  %h = tandem.all_gather.default(%n, 0, 2, "0")
///   %p = aten._scaled_mm.default(%c, %b, ...)          %p = aten._scaled_mm.default(%h, %b, ...)
[[nodiscard]] Result<void> narrow_gathers(Graph& graph);

/// A gather and the products that take it as left operand become one op; so do gathers of its scale, and of
/// wider values for others, that run in the same schedule:
///
///   %g = tandem.all_gather.default(%a, 0, 2, "0")      %f = symm_mem.fused_all_gather_matmul.default(
///   %p = aten.mm.default(%g, %b)                  ->          %a, [%b, %c], 0, "0", return_A=false)
///   %q = aten.mm.default(%g, %c)                       %p, %q = %f[1], %f[2]
[[nodiscard]] Result<void> fuse_gathers(Graph& graph, const FuseOptions& options);

/// A product, or a sum of products, and the scatter of it become one op:
///
///   %p = aten.mm.default(%a, %b)                       %r = symm_mem.fused_matmul_reduce_scatter.default(
///   %q = aten.mm.default(%c, %d)                   ->         [%a, %c], [%b, %d], "sum", 0, "0")
///   %s = aten.add.Tensor(%p, %q)
///   %r = tandem.reduce_scatter.default(
///          %s, "sum", 0, 2, "0")
[[nodiscard]] Result<void> fuse_scatters(Graph& graph, const FuseOptions& options);

/// merge_collectives() backwards, for what was not fused: PyTorch's ops again.
[[nodiscard]] Result<void> restore_collectives(Graph& graph);

}  // namespace tandem::graph
