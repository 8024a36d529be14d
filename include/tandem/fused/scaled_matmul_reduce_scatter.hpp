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

struct ScaledMatmulReduceScatterArgs {
  TensorList a = {};  ///< [..., k_j]; any strides; equal in all sizes but the last
  TensorList b = {};  ///< [k_j, n]; as many as a
  /// f32, one a product: of a_j one element or a_j's sizes with 1 last, of b_j one element or [1, n].
  /// Neither: that product is not scaled.
  OptionalTensorList a_scale = {};
  OptionalTensorList b_scale = {};
  /// Empty, or one a product: [n], any type of out, also where n is scattered. Added on every rank, before
  /// the sum over ranks: a sum holds it W times.
  OptionalTensorList bias = {};
  OptionalTensorList result_scale = {};  ///< empty, or one a product: f32, one element
  int scatter_dim = 0;                   ///< in [0, a.dim()), of the N-D product; the last scatters n
  coll::ReduceOp reduce_op = coll::ReduceOp::kSum;
  TensorView out = {};                     ///< with output_layout(); f32, bf16, f16 or f8
  std::optional<TensorView> product = {};  ///< [..., n] contiguous, out's type: this rank's own sum
  std::optional<DType> partials = {};      ///< type in which partial sums travel; default out's, or f32
  bool fast_accum = false;                 ///< allows less exact sums; the CPU has none
  Algorithm algorithm = Algorithm::kAuto;
  /// Sum of a rank's k_j, as `auto` shall count it: the same on every rank, while k_j may differ. 0: not
  /// told; b counts as square then, and measured times do not count.
  std::int64_t plan_k = 0;
  trace::EnqueueTrace* trace = nullptr;  ///< receives what `pipelined` enqueues
};

/// Sums the products (a_j * b_j * scales_j + bias_j) * result_scale_j over j and over the group, and leaves
/// shard_of(size, W, r) of scatter_dim on rank r.
/// Shapes:  out: a's sizes with n last, and this rank's shard of scatter_dim; contiguous.
/// Types:   a_j and b_j as gemm::scaled_matmul() takes them. Products add in f32 in list order; partials are
///          rounded to `partials`, summed in f32 in rank order 0..W-1, rounded once (f8 saturates): the same
///          bits in every run and for every algorithm.
/// Memory:  as fused_matmul_reduce_scatter.
/// Order:   as fused_all_gather_matmul.
/// Errors:  as fused_all_gather_matmul; must agree: out's dtype, sizes of a but k, n, op, dim, partials,
///          algorithm. kUnsupported on CUDA devices, which have no scaled products yet.
/// Source:  docs/design/schedules.md
[[nodiscard]] Result<OpReport> fused_scaled_matmul_reduce_scatter(const ScaledMatmulReduceScatterArgs& args,
                                                                  Group& group, Stream& stream);

/// As for fused_all_gather_matmul.
[[nodiscard]] Result<OpReport> plan(const ScaledMatmulReduceScatterArgs& args, Group& group, Stream& stream);
[[nodiscard]] Support can_run(const ScaledMatmulReduceScatterArgs& args, Group& group, Stream& stream);

/// What out must look like on rank `rank` of `world`. Errors: kInvalidArgument when a, b and dim do not fit.
[[nodiscard]] Result<Layout> output_layout(const ScaledMatmulReduceScatterArgs& args, int world, int rank);
/// A new tensor of type `dtype` for this rank's out. Errors: as output_layout(); kOutOfMemory.
[[nodiscard]] Result<Tensor> make_output(const ScaledMatmulReduceScatterArgs& args, DType dtype,
                                         const Group& group, Device& device);

}  // namespace tandem
