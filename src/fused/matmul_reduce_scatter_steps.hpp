#pragma once

#include <cstdint>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/fused/matmul_reduce_scatter.hpp>
#include <tandem/symm/handle.hpp>

#include "fused/matmul_reduce_scatter_check.hpp"
#include "fused/op_memory.hpp"

namespace tandem::fused {

/// One checked call with the scratch memory it works in.
struct ScatterOp {
  const MatmulReduceScatterArgs& args;
  const ScatterProblem& problem;
  Group& group;
  Stream& stream;
  TensorView copies;    ///< a's that need a copy, one contiguous [rows, k_j] after the other
  TensorView partials;  ///< serial: [total, unit], the partials for all ranks
  TensorView stack;     ///< pipelined: [W, s_r, unit], all ranks' partials for this one
  TensorView sums[2];   ///< f32: where products are summed, one a stream
  TensorView reduced;   ///< serial with bias on scattered columns: f32 [s_r * unit]
};
/// Finds the memory, without touching it.
[[nodiscard]] Result<ScatterOp> prepare(const MatmulReduceScatterArgs& args, const ScatterProblem& problem,
                                        Algorithm algorithm, Group& group, Stream& stream);
[[nodiscard]] std::int64_t workspace_bytes(const ScatterOp& op, Algorithm algorithm);

/// Makes, before anything of the op is enqueued, what its products would make at their first run.
[[nodiscard]] Result<void> prepare_products(const ScatterOp& op, Algorithm algorithm);

/// Puts the op on its streams: the products, then a collective; or one product a rank, beside the copies.
[[nodiscard]] Result<void> enqueue_serial(const ScatterOp& op, symm::Handle* workspace);
[[nodiscard]] Result<void> enqueue_pipelined(const ScatterOp& op, symm::Handle* workspace);

}  // namespace tandem::fused
