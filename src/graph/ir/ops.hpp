#pragma once

#include <cstddef>
#include <string_view>

namespace tandem::graph::op {

// Ops that passes look for, by the names that captured programs have.

inline constexpr std::string_view kGetItem = "<built-in function getitem>";
inline constexpr std::string_view kSplit = "aten.split.Tensor";
inline constexpr std::string_view kSplitSizes = "aten.split_with_sizes.default";
inline constexpr std::string_view kSlice = "aten.slice.Tensor";
inline constexpr std::string_view kCat = "aten.cat.default";
inline constexpr std::string_view kViewDType = "aten.view.dtype";
inline constexpr std::string_view kReshape = "aten.reshape.default";
inline constexpr std::string_view kView = "aten.view.default";
inline constexpr std::string_view kUnsafeView = "aten._unsafe_view.default";
inline constexpr std::string_view kSqueeze = "aten.squeeze.dim";
inline constexpr std::string_view kUnsqueeze = "aten.unsqueeze.default";
inline constexpr std::string_view kPermute = "aten.permute.default";

inline constexpr std::string_view kClone = "aten.clone.default";
inline constexpr std::string_view kFull = "aten.full.default";
inline constexpr std::string_view kConvert = "prims.convert_element_type.default";
inline constexpr std::string_view kAdd = "aten.add.Tensor";
inline constexpr std::string_view kMul = "aten.mul.Tensor";
inline constexpr std::string_view kMax = "aten.max.default";
inline constexpr std::string_view kMm = "aten.mm.default";
inline constexpr std::string_view kBmm = "aten.bmm.default";
inline constexpr std::string_view kAddmm = "aten.addmm.default";
inline constexpr std::string_view kScaledMm = "aten._scaled_mm.default";
/// (a, b, [a scale], [recipe], [swizzle], [b scale], [recipe], [swizzle], bias, dtype, [dim...], fast)
inline constexpr std::string_view kScaledMmByRecipe = "aten._scaled_mm_v2.default";
inline constexpr std::string_view kAttention = "aten._scaled_dot_product_cudnn_attention.default";
inline constexpr std::string_view kAttentionBackward =
    "aten._scaled_dot_product_cudnn_attention_backward.default";

/// (op, its arguments...): runs a random op with a state of its own.
inline constexpr std::string_view kWithRngState = "graphsafe_run_with_rng_state";

inline constexpr std::string_view kFunctionalAllReduce = "_c10d_functional.all_reduce.default";
inline constexpr std::string_view kFunctionalAllGather = "_c10d_functional.all_gather_into_tensor.default";
inline constexpr std::string_view kFunctionalReduceScatter = "_c10d_functional.reduce_scatter_tensor.default";
inline constexpr std::string_view kWait = "_c10d_functional.wait_tensor.default";
inline constexpr std::string_view kWaits = "_c10d_functional.wait_tensors.default";
inline constexpr std::string_view kAllToAll = "_c10d_functional.all_to_all_single.default";
inline constexpr std::string_view kBroadcast = "_c10d_functional.broadcast.default";

/// (shard, dim, world size, group) -> the shards of all ranks along `dim`.
inline constexpr std::string_view kAllGather = "tandem.all_gather.default";
/// (partial, "sum" or "avg", dim, world size, group) -> this rank's part, along `dim`, of the reduced whole.
inline constexpr std::string_view kReduceScatter = "tandem.reduce_scatter.default";

// Fused ops, by PyTorch's names where it has them. Theirs are the first arguments; a list that theirs return
// beside a tensor is flattened. docs/design/graph.md has the whole signatures.

[[nodiscard]] constexpr bool is_fused(std::string_view target) {
  return target.starts_with("symm_mem.fused_") || target.starts_with("tandem.fused_");
}

/// (a, [b...], dim, group, bias=[b...], return_A=) -> [gathered a or null, products...]
inline constexpr std::string_view kFusedAllGatherMatmul = "symm_mem.fused_all_gather_matmul.default";
/// (a, [b...], a scale, [b scale...], dim, group, [bias...], [result scale...], [dtype...], [fast...],
/// beside=[shard...], return_A=, scale_mode=) -> [gathered a or null, products..., gathered shards beside...]
inline constexpr std::string_view kFusedAllGatherScaledMatmul =
    "symm_mem.fused_all_gather_scaled_matmul.default";
/// Shards that the scaled one gathers beside the first, at most.
inline constexpr std::size_t kMaxAlsoGathered = 6;
/// (a, b, "sum" or "avg", dim, group, return_product=) -> scattered, or [scattered, product]
inline constexpr std::string_view kFusedMatmulReduceScatter = "symm_mem.fused_matmul_reduce_scatter.default";
/// (a, b, a scale, b scale, "sum" or "avg", dim, dim, group, shape, bias, result scale, dtype, fast,
/// return_product=)
inline constexpr std::string_view kFusedScaledMatmulReduceScatter =
    "symm_mem.fused_scaled_matmul_reduce_scatter.default";
// PyTorch has no such op, so these have tandem's names.
/// (a, b, "sum" or "avg", group, bias=, return_product=) -> sum over ranks, or [sum, product]
inline constexpr std::string_view kFusedMatmulAllReduce = "tandem.fused_matmul_all_reduce.default";
/// (a, b, a scale, b scale, "sum" or "avg", group, bias, result scale, dtype, fast, return_product=)
inline constexpr std::string_view kFusedScaledMatmulAllReduce =
    "tandem.fused_scaled_matmul_all_reduce.default";

// Collectives that run beside products, by PyTorch's names: what they make is waited for by kWait.
/// (shard, group) -> the shards of all ranks along dim 0
inline constexpr std::string_view kLowContentionAllGather = "symm_mem._low_contention_all_gather.default";
/// (partial, "sum" or "avg", group) -> this rank's part, along dim 0, of the reduced whole
inline constexpr std::string_view kLowContentionReduceScatter =
    "symm_mem._low_contention_reduce_scatter.default";
[[nodiscard]] constexpr bool is_low_contention(std::string_view target) {
  return target == kLowContentionAllGather || target == kLowContentionReduceScatter;
}

}  // namespace tandem::graph::op
