#pragma once

#include <cstdint>
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

/// The arguments of fused_scaled_matmul_all_reduce(). Product j is a_j * b_j.
struct ScaledMatmulAllReduceArgs {
  TensorList a = {};  ///< [..., k_j] each; any strides; equal in all sizes but the last
  TensorList b = {};  ///< [k_j, n] each; as many as a
  /// As in ScaledMatmulReduceScatterArgs. A scale of a's rows must be seen as [rows of a_j, 1] without a
  /// copy.
  OptionalTensorList a_scale = {};
  OptionalTensorList b_scale = {};
  /// Empty, or one for each product: [n], any type of out. It is added on every rank before the sum over
  /// ranks, so a sum holds it W times.
  OptionalTensorList bias = {};
  OptionalTensorList result_scale = {};  ///< empty, or one for each product: f32, one element
  coll::ReduceOp reduce_op = coll::ReduceOp::kSum;
  TensorView out = {};                     ///< with output_layout(); f32, bf16, f16 or f8
  std::optional<TensorView> product = {};  ///< [..., n] contiguous, out's type: receives this rank's own sum
  std::optional<DType> partials = {};      ///< type in which partials travel: out's (default), or f32
  bool fast_accum = false;                 ///< allows less exact sums; the CPU has none
  Algorithm algorithm = Algorithm::kAuto;
  std::int64_t plan_k = 0;               ///< as in MatmulReduceScatterArgs
  trace::EnqueueTrace* trace = nullptr;  ///< receives what `pipelined` enqueues
};

/// Sums (a_j * b_j * scales_j + bias_j) * result_scale_j over j and over the group; every rank gets all of
/// it, with the same bits.
/// Shapes:  out has a's sizes with n last; it is contiguous.
/// Types:   As fused_scaled_matmul_reduce_scatter().
/// Memory:  As fused_matmul_all_reduce().
/// Order:   As fused_all_gather_matmul().
/// Errors:  As fused_all_gather_matmul(). out's dtype, rows of a, n, reduce_op, partials, plan_k, algorithm,
///          and whether products have no scales, scales of one element, or scales of rows, must agree.
/// Source:  docs/design/schedules.md
[[nodiscard]] Result<OpReport> fused_scaled_matmul_all_reduce(const ScaledMatmulAllReduceArgs& args,
                                                              Group& group, Stream& stream);

/// As for fused_all_gather_matmul().
[[nodiscard]] Result<OpReport> plan(const ScaledMatmulAllReduceArgs& args, Group& group, Stream& stream);
/// Whether plan() succeeds, and its error if not.
[[nodiscard]] Support can_run(const ScaledMatmulAllReduceArgs& args, Group& group, Stream& stream);

/// The layout that out must have, on every rank.
/// Errors:  kInvalidArgument when a and b do not fit.
[[nodiscard]] Result<Layout> output_layout(const ScaledMatmulAllReduceArgs& args);
/// Allocates a tensor of type `dtype` for out.
/// Errors:  as output_layout(); kOutOfMemory.
[[nodiscard]] Result<Tensor> make_output(const ScaledMatmulAllReduceArgs& args, DType dtype, Device& device);

}  // namespace tandem
