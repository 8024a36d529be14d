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

/// The arguments of fused_matmul_reduce_scatter().
struct MatmulReduceScatterArgs {
  TensorList a = {};    ///< [..., k_j] each; any strides; equal in all sizes but the last
  TensorList b = {};    ///< [k_j, n] each; as many as a
  int scatter_dim = 0;  ///< in [0, a.dim()); the last dim scatters n
  coll::ReduceOp reduce_op = coll::ReduceOp::kSum;
  TensorView out = {};                     ///< with output_layout(); see make_output()
  std::optional<TensorView> bias = {};     ///< [n], also where n is scattered; added once, after the mean
  std::optional<TensorView> product = {};  ///< [..., n] contiguous: receives this rank's own sum of a_j * b_j
  std::optional<DType> partials = {};      ///< type in which partials travel: out's (default), or f32
  Algorithm algorithm = Algorithm::kAuto;
  /// The sum of one rank's k_j, for `auto` to count with. It must be the same on every rank, while k_j may
  /// differ. 0 means unknown: `auto` then assumes a square b and ignores measured times.
  std::int64_t plan_k = 0;
  trace::EnqueueTrace* trace = nullptr;  ///< receives what `pipelined` enqueues
};

/// Sums a_j * b_j over j and over the group, and leaves shard_of(size, W, r) of scatter_dim on rank r.
/// Shapes:  out has a's sizes with n last, and this rank's shard of scatter_dim; it is contiguous.
/// Types:   f32, bf16 or f16, the same for all. Products of a list are added in f32 in list order and rounded
///          once to `partials`. Partials are added in f32 in rank order 0..W-1, and rounded once. Every run
///          and algorithm gives the same bits. On GPUs this holds for `serial`, as far as the vendor's
///          product gives the same bits for any number of rows. `pipelined` on GPUs adds in products where
///          rows are scattered and partials have out's type: each further product of a list adds to the sum
///          in that type, the other ranks' partials are added in f32 in rank order and rounded to it, and the
///          own products add to that sum. So each product is rounded with what it adds; cuBLASLt may round
///          it before that too. Where parts are small, and with a mean, a bias, a kept product or dims before
///          scatter_dim, partials are rounded once, and added in f32, the own one last. Every run with the
///          same arguments gives the same bits. With Config::batch_invariant all algorithms give those of
///          `serial` on GPUs too, and a row has the same bits in every batch.
/// Memory:  out and product overlap no input and not each other.
/// Order:   As fused_all_gather_matmul().
/// Errors:  As fused_all_gather_matmul(). dtype, sizes of a but k, n, reduce_op, scatter_dim, partials,
///          plan_k and algorithm must agree.
/// Source:  docs/design/schedules.md
[[nodiscard]] Result<OpReport> fused_matmul_reduce_scatter(const MatmulReduceScatterArgs& args, Group& group,
                                                           Stream& stream);

/// As for fused_all_gather_matmul().
[[nodiscard]] Result<OpReport> plan(const MatmulReduceScatterArgs& args, Group& group, Stream& stream);
/// Whether plan() succeeds, and its error if not.
[[nodiscard]] Support can_run(const MatmulReduceScatterArgs& args, Group& group, Stream& stream);

/// The layout that out must have on rank `rank` of `world`.
/// Errors:  kInvalidArgument when a, b and scatter_dim do not fit.
[[nodiscard]] Result<Layout> output_layout(const MatmulReduceScatterArgs& args, int world, int rank);
/// Allocates a tensor for this rank's out.
/// Errors:  as output_layout(); kOutOfMemory.
[[nodiscard]] Result<Tensor> make_output(const MatmulReduceScatterArgs& args, const Group& group,
                                         Device& device);

}  // namespace tandem
