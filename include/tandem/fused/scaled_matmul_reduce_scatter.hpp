#pragma once

#include <optional>
#include <tandem/base/error.hpp>
#include <tandem/base/support.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/base/tensor_list.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/fused/report.hpp>
#include <tandem/trace/enqueue_trace.hpp>

namespace tandem {

/// The arguments of fused_scaled_matmul_reduce_scatter(). Product j is a_j * b_j.
struct ScaledMatmulReduceScatterArgs {
  TensorList a = {};  ///< [..., k_j] each; any strides; equal in all sizes but the last
  TensorList b = {};  ///< [k_j, n] each; as many as a
  /// f32, one for each product: of a_j one element, a_j's sizes with 1 last or [rows of a_j, 1], of b_j one
  /// element or [1, n]. A product has both scales or neither.
  OptionalTensorList a_scale = {};
  OptionalTensorList b_scale = {};
  /// Empty, or one for each product: [n], any type of out, also where n is scattered. It is added on every
  /// rank before the sum over ranks, so a sum holds it W times.
  OptionalTensorList bias = {};
  OptionalTensorList result_scale = {};  ///< empty, or one for each product: f32, one element
  int scatter_dim = 0;                   ///< in [0, a.dim()); the last dim scatters n
  coll::ReduceOp reduce_op = coll::ReduceOp::kSum;
  TensorView out = {};                     ///< with output_layout(); f32, bf16, f16 or f8
  std::optional<TensorView> product = {};  ///< [..., n] contiguous, out's type: receives this rank's own sum
  std::optional<DType> partials = {};      ///< type in which partials travel: out's (default), or f32
  bool fast_accum = false;                 ///< allows less exact sums; the CPU has none
  Algorithm algorithm = Algorithm::kAuto;
  std::int64_t plan_k = 0;               ///< as in MatmulReduceScatterArgs
  trace::EnqueueTrace* trace = nullptr;  ///< receives what `pipelined` enqueues
};

/// Sums (a_j * b_j * scales_j + bias_j) * result_scale_j over j and over the group. Rank r keeps
/// shard_of(size, W, r) of scatter_dim.
/// Shapes:  out has a's sizes with n last, and this rank's shard of scatter_dim; it is contiguous.
/// Types:   a_j and b_j as gemm::scaled_matmul() takes them. Products are added in f32 in list order.
///          Partials are rounded to `partials`, added in f32 in rank order 0..W-1, and rounded once; f8
///          saturates. `pipelined` on GPUs adds in products as fused_matmul_reduce_scatter() does. Every run
///          of an algorithm gives the same bits. With products of tandem's own, all others give the same
///          bits as each other.
/// Memory:  As fused_matmul_reduce_scatter().
/// Order:   As fused_all_gather_matmul().
/// Errors:  As fused_all_gather_matmul(). out's dtype, sizes of a but k, n, reduce_op, scatter_dim, partials,
///          algorithm, and whether products have no scales, scales of one element, or scales of rows, must
///          agree.
/// Source:  docs/design/schedules.md
[[nodiscard]] Result<OpReport> fused_scaled_matmul_reduce_scatter(const ScaledMatmulReduceScatterArgs& args,
                                                                  Group& group, Stream& stream);

/// As for fused_all_gather_matmul().
[[nodiscard]] Result<OpReport> plan(const ScaledMatmulReduceScatterArgs& args, Group& group, Stream& stream);
/// Whether plan() succeeds, and its error if not.
[[nodiscard]] Support can_run(const ScaledMatmulReduceScatterArgs& args, Group& group, Stream& stream);

/// The layout that out must have on rank `rank` of `world`.
/// Errors:  kInvalidArgument when a, b and scatter_dim do not fit.
[[nodiscard]] Result<Layout> output_layout(const ScaledMatmulReduceScatterArgs& args, int world, int rank);
/// Allocates a tensor of type `dtype` for this rank's out.
/// Errors:  as output_layout(); kOutOfMemory.
[[nodiscard]] Result<Tensor> make_output(const ScaledMatmulReduceScatterArgs& args, DType dtype,
                                         const Group& group, Device& device);

}  // namespace tandem
