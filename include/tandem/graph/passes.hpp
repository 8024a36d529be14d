#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <tandem/graph/fuse.hpp>
#include <tandem/graph/graph.hpp>

namespace tandem::graph {

/// A pass: a function that rewrites a graph and does not change what it computes.
struct Pass {
  std::string_view name;  ///< "merge-collectives"
  Result<void> (*run)(Graph& graph, const FuseOptions& options);
};

/// All passes, in the order in which they run.
[[nodiscard]] std::span<const Pass> all_passes();

/// Runs passes in order and verifies the graph after each that has changed it. Then it calls `after`, if
/// there is one.
/// Errors:  those of the passes; kInternal with the text of verify() and the pass's name, which is a bug of
///          that pass.
[[nodiscard]] Result<void> run_passes(
    Graph& graph, std::span<const Pass> passes,
    const std::function<void(const Pass& pass, const Graph& graph)>& after = {},
    const FuseOptions& options = {});

/// Makes one collective for each tensor of one that takes several:
///
///   %c = all_gather_into_tensor_coalesced([%a, %b], 2, "0")      %g = all_gather_into_tensor(%a, 2, "0")
///   %x, %y = %c[0], %c[1]                                    ->  %u = wait_tensor(%g)
///   %u = wait_tensor(%x)                                         %h = all_gather_into_tensor(%b, 2, "0")
///   %v = wait_tensor(%y)                                         %v = wait_tensor(%h)
///
/// So it does with all_reduce_coalesced and reduce_scatter_tensor_coalesced. One wait for all of them will
/// do.
[[nodiscard]] Result<void> split_coalesced(Graph& graph);

/// Merges a collective along dim 0 with the split and cat by which PyTorch moves another dim there and back.
/// The result is one node that names the dim:
///
///   %g = all_gather_into_tensor(%a, 2, "0")        %g = tandem.all_gather.default(%a, 1, 2, "0")
///   %w = wait_tensor(%g)
///   %s = split(%w, 4)                         ->
///   %x, %y = %s[0], %s[1]
///   %c = cat([%x, %y], 1)
///
/// The pieces may be cast to bytes and back around the cat. The result of a reduce-scatter may be saved
/// before its wait. A gather whose value is also used in the order of dim 0 is not merged.
[[nodiscard]] Result<void> merge_collectives(Graph& graph);

/// Makes one gather of those that gather the same shard along the same dim:
///
///   %g = tandem.all_gather.default(%a, 0, 2, "0")      %g = tandem.all_gather.default(%a, 0, 2, "0")
///   %h = tandem.all_gather.default(%a, 0, 2, "0")  ->  my.op(%g, %g)
///   my.op(%g, %h)
[[nodiscard]] Result<void> merge_equal_gathers(Graph& graph);

/// Writes products beside collectives in the one form that fused ops have:
///
///   %p = bmm(%a, %b)             ->  %p = reshape(mm(reshape(%a), reshape(%b)))    of one matrix each
///   %p = addmm(%row, %a, %b)     ->  %p = addmm(reshape(%row, [n]), %a, %b)        a row [1, n]
///   %p = _scaled_mm_v2(%a, %b,   ->  %p = _scaled_mm(%a, %b, %s, %t, null, null, <torch.bfloat16>, false)
///          [%s], [1], [0],                                       scales of the whole or of rows
///          [%t], [1], [0], null, <torch.bfloat16>)
///   %p = addmm(%row, %a, %b,     ->  %p = addmm(%row, %a, mul(%b, 2))              not in f16
///              alpha=2)
[[nodiscard]] Result<void> plain_products(Graph& graph);

/// Makes one op of a chain of reshapes, or of permutes, and removes those, and slices, that change nothing:
///
///   %v = aten.reshape.default(%g, [1, 64, 256])    %w = aten.reshape.default(%g, [64, 256])
///   %w = aten.reshape.default(%v, [64, 256])   ->  %u = aten.permute.default(%b, [1, 0, 2])
///   %t = aten.permute.default(%b, [1, 2, 0])
///   %u = aten.permute.default(%t, [0, 2, 1])
[[nodiscard]] Result<void> fold_views(Graph& graph);

/// Takes the padding of uneven shards out of the program. The last ranks' shards of 61 rows over 4 ranks are
/// shorter; what is gathered is trimmed, and what is scattered has rows of zeros behind it:
///
///   %g = tandem.all_gather.default(%a, 0, 4, "0")      %s = tandem.all_gather.default(%a, 0, 4, "0",
///   %s = aten.slice.Tensor(%g, 0, 0, 61)          ->                                 gather_size=61)
///   %z = constant_pad_nd(%p, [0, 0, 0, 3])             %r = tandem.reduce_scatter.default(
///   %r = tandem.reduce_scatter.default(                       %p, "sum", 0, 4, "0")
///          %z, "sum", 0, 4, "0")
///
/// The padding may be that of each rank's block, which are joined then. The rows of %r beyond a rank's shard
/// are zeros, as before. Other rows than those of the shard rule are no padding.
[[nodiscard]] Result<void> uneven_shards(Graph& graph);

/// Gives the rows of a product another order, where those of a gather before it, or of a scatter behind it,
/// have that. Each block of rows is there once:
///
///   %s = aten.slice.Tensor(%g, 0, 4, 8)                %q = aten.mm.default(%g, %b)
///   %t = aten.slice.Tensor(%g, 0, 0, 4)                %s = aten.slice.Tensor(%q, 0, 4, 8)
///   %c = aten.cat.default([%s, %t])               ->   %t = aten.slice.Tensor(%q, 0, 0, 4)
///   %p = aten.mm.default(%c, %b)                       %p = aten.cat.default([%s, %t])
///
/// Before a scatter the left operands of all products of the sum are put in order.
[[nodiscard]] Result<void> move_blocks(Graph& graph);

/// Moves numbers, and columns of numbers, that multiply rows between a product and its collective:
///
///   %m = aten.mul.Tensor(%g, 0.5)           ->  %g gathers aten.mul.Tensor(%a, 0.5)
///   %m = aten.mul.Tensor(%g, %column)           %q = aten.mm.default(%g, %b)
///   %p = aten.mm.default(%m, %b)            ->  %p = aten.mul.Tensor(%q, %column)
///   %m = aten.mul.Tensor(%p, 0.5)               %q = tandem.reduce_scatter.default(%p, ...)
///   %r = tandem.reduce_scatter.default(%m)  ->  %r = aten.mul.Tensor(%q, 0.5)
///   %m = aten.mul.Tensor(%p, %column)       ->  %p = aten.mm.default(aten.mul.Tensor(%a, %column), %b),
///                                               where %m is a term of a sum that is scattered
///
/// What is rounded in between differs, but for gathers. In f16 nothing moves that a value between could
/// exceed.
[[nodiscard]] Result<void> move_factors(Graph& graph);

/// Computes the maximum of a gathered tensor from the shards' maxima, which are known before the gather. It
/// does so with options.share_maxima, where a product's scale alone keeps a gather from being fused:
///
///   %g = tandem.all_gather.default(%a, 0, 2, "0")      %g = tandem.all_gather.default(%a, 0, 2, "0")
///   %m = aten.max.default(%g)                      ->  %s = aten.max.default(%a)
///                                                      %r = all_reduce(%s, "max", "0")
///                                                      %m = wait_tensor(%r)
[[nodiscard]] Result<void> share_maxima(Graph& graph, const FuseOptions& options);

/// Moves casts that need one row at a time, and their scales, to before the gather. A product can then
/// overlap the gather. Fewer bytes are gathered. If the wide value is needed too, both are gathered.
///
///   %g = tandem.all_gather.default(%a, 0, 2, "0")      %n = convert_element_type(%a, <e4m3>)
///   %c = convert_element_type(%g, <e4m3>)          ->  %h = tandem.all_gather.default(%n, 0, 2, "0")
///   %p = aten._scaled_mm.default(%c, %b, ...)          %p = aten._scaled_mm.default(%h, %b, ...)
[[nodiscard]] Result<void> narrow_gathers(Graph& graph);

/// Fuses a gather with the products that take it as left operand. Gathers of its scale, and of wider values,
/// join the same op:
///
///   %g = tandem.all_gather.default(%a, 0, 2, "0")      %f = symm_mem.fused_all_gather_matmul.default(
///   %p = aten.mm.default(%g, %b)                  ->          %a, [%b, %c], 0, "0", return_A=false)
///   %q = aten.mm.default(%g, %c)                       %p, %q = %f[1], %f[2]
[[nodiscard]] Result<void> fuse_gathers(Graph& graph, const FuseOptions& options);

/// Fuses a product, or a sum of products, with the scatter of it:
///
///   %p = aten.mm.default(%a, %b)                       %r = symm_mem.fused_matmul_reduce_scatter.default(
///   %q = aten.mm.default(%c, %d)                   ->         [%a, %c], [%b, %d], "sum", 0, "0")
///   %s = aten.add.Tensor(%p, %q)
///   %r = tandem.reduce_scatter.default(
///          %s, "sum", 0, 2, "0")
///
/// And with the all-reduce of it, which is followed by one wait:
///
///   %p = aten.mm.default(%a, %b)                       %w = tandem.fused_matmul_all_reduce.default(
///   %r = _c10d_functional.all_reduce.default(     ->          %a, %b, "sum", "0")
///          %p, "sum", "0")
///   %w = _c10d_functional.wait_tensor.default(%r)
[[nodiscard]] Result<void> fuse_scatters(Graph& graph, const FuseOptions& options);

/// Undoes merge_collectives() and uneven_shards() for collectives that were not fused: they become PyTorch's
/// ops again.
[[nodiscard]] Result<void> restore_collectives(Graph& graph);

/// Starts collectives earlier, and waits for them later, where products beside them then take longer than
/// they do. They become ops that leave the multiprocessors to these products. It does so with
/// options.low_contention:
///
///   %p = aten.mm.default(%a, %b)                  %g = symm_mem._low_contention_all_gather.default(%w, "0")
///   %g = all_gather_into_tensor(%w, 2, "0")  ->   %p = aten.mm.default(%a, %b)
///   %u = wait_tensor(%g)                          %u = wait_tensor(%g)
///   %q = aten.mm.default(%p, %u)                  %q = aten.mm.default(%p, %u)
///
/// Nothing that talks to other ranks stands between start and wait.
[[nodiscard]] Result<void> run_beside_products(Graph& graph, const FuseOptions& options);

/// Undoes split_coalesced() for those that were not fused, where two or more are left of one.
[[nodiscard]] Result<void> join_coalesced(Graph& graph);

}  // namespace tandem::graph
