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

/// The arguments of fused_matmul_all_reduce().
struct MatmulAllReduceArgs {
  TensorList a = {};  ///< [..., k_j] each; any strides; equal in all sizes but the last
  TensorList b = {};  ///< [k_j, n] each; as many as a
  coll::ReduceOp reduce_op = coll::ReduceOp::kSum;
  TensorView out = {};                     ///< with output_layout(); see make_output()
  std::optional<TensorView> bias = {};     ///< [n]; added once, after the mean
  std::optional<TensorView> product = {};  ///< [..., n] contiguous: receives this rank's own sum of a_j * b_j
  std::optional<DType> partials = {};      ///< type in which partials travel: out's (default), or f32
  Algorithm algorithm = Algorithm::kAuto;
  std::int64_t plan_k = 0;               ///< as in MatmulReduceScatterArgs
  trace::EnqueueTrace* trace = nullptr;  ///< receives what `pipelined` enqueues
};

/// Sums a_j * b_j over j and over the group; every rank gets all of it, with the same bits.
/// Shapes:  out has a's sizes with n last; it is contiguous.
/// Types:   As fused_matmul_reduce_scatter(), whose sums an element of out has: ranks share the rows,
///          whatever the shape, and each gives the rows that it has summed to all. The last of the own
///          products is rounded with what it adds where a scatter of rows would be.
/// Memory:  out and product overlap no input and not each other.
/// Order:   As fused_all_gather_matmul().
/// Errors:  As fused_all_gather_matmul(). dtype, rows of a, n, reduce_op, partials, plan_k and algorithm must
///          agree.
/// Source:  docs/design/schedules.md
[[nodiscard]] Result<OpReport> fused_matmul_all_reduce(const MatmulAllReduceArgs& args, Group& group,
                                                       Stream& stream);

/// As for fused_all_gather_matmul().
[[nodiscard]] Result<OpReport> plan(const MatmulAllReduceArgs& args, Group& group, Stream& stream);
/// Whether plan() succeeds, and its error if not.
[[nodiscard]] Support can_run(const MatmulAllReduceArgs& args, Group& group, Stream& stream);

/// The layout that out must have, on every rank.
/// Errors:  kInvalidArgument when a and b do not fit.
[[nodiscard]] Result<Layout> output_layout(const MatmulAllReduceArgs& args);
/// Allocates a tensor for out.
/// Errors:  as output_layout(); kOutOfMemory.
[[nodiscard]] Result<Tensor> make_output(const MatmulAllReduceArgs& args, Device& device);

}  // namespace tandem
