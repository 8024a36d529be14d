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

struct MatmulReduceScatterArgs {
  TensorList a = {};    ///< [..., k_j]; any strides; equal in all sizes but the last
  TensorList b = {};    ///< [k_j, n]; as many as a
  int scatter_dim = 0;  ///< in [0, a.dim()); the last scatters n
  coll::ReduceOp reduce_op = coll::ReduceOp::kSum;
  TensorView out = {};                     ///< with output_layout()
  std::optional<TensorView> bias = {};     ///< [n], also where n is scattered; added once, after the mean
  std::optional<TensorView> product = {};  ///< [..., n] contiguous: receives this rank's own sum of a_j * b_j
  std::optional<DType> partials = {};      ///< type in which partial sums travel; default out's, or f32
  Algorithm algorithm = Algorithm::kAuto;
  /// Sum of a rank's k_j, as `auto` shall count it: the same on every rank, while k_j may differ. 0: not
  /// told; b counts as square then, and measured times do not count.
  std::int64_t plan_k = 0;
  trace::EnqueueTrace* trace = nullptr;  ///< receives what `pipelined` enqueues
};

/// Sums a_j * b_j over j and over the group, and leaves shard_of(size, W, r) of scatter_dim on rank r.
/// Shapes:  out: a's sizes with n last, and this rank's shard of scatter_dim; contiguous.
/// Types:   f32, bf16 or f16, the same for all. Partials are rounded to `partials`, summed in f32 in rank
///          order 0..W-1, rounded once: the same bits in every run and for every algorithm; on GPUs, for
///          every algorithm as far as the vendor's product has the same bits for any number of rows.
/// Memory:  out and product overlap nothing: no input, and not each other.
/// Order:   as fused_all_gather_matmul.
/// Errors:  as fused_all_gather_matmul; must agree: dtype, sizes of a but k, n, op, dim, partials, plan_k,
///          algorithm.
/// Source:  docs/design/schedules.md
[[nodiscard]] Result<OpReport> fused_matmul_reduce_scatter(const MatmulReduceScatterArgs& args, Group& group,
                                                           Stream& stream);

/// As for fused_all_gather_matmul.
[[nodiscard]] Result<OpReport> plan(const MatmulReduceScatterArgs& args, Group& group, Stream& stream);
[[nodiscard]] Support can_run(const MatmulReduceScatterArgs& args, Group& group, Stream& stream);

/// What out must look like on rank `rank` of `world`. Errors: kInvalidArgument when a, b and dim do not fit.
[[nodiscard]] Result<Layout> output_layout(const MatmulReduceScatterArgs& args, int world, int rank);
/// A new tensor for this rank's out. Errors: as output_layout(); kOutOfMemory.
[[nodiscard]] Result<Tensor> make_output(const MatmulReduceScatterArgs& args, const Group& group,
                                         Device& device);

}  // namespace tandem
