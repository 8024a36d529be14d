#pragma once

#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/fused/all_gather_matmul.hpp>
#include <tandem/symm/handle.hpp>

#include "fused/all_gather_matmul_check.hpp"
#include "fused/op_memory.hpp"

namespace tandem::fused {

/// One checked call with the memory it works in.
struct GatherOp {
  const AllGatherMatmulArgs& args;
  const GatherProblem& problem;
  Group& group;
  Stream& stream;
  SliceMarks& marks;
  TensorView shard;     ///< [s_r, unit] contiguous: a, or the scratch that a is copied to
  TensorView gathered;  ///< [total, unit] contiguous: args.gathered's memory or scratch
  TensorView
      sums;  ///< f32 [rows * sum_n]: one [rows, n_i] after the other; only when the last dim is gathered
};
/// Finds the memory, without touching it.
[[nodiscard]] Result<GatherOp> prepare(const AllGatherMatmulArgs& args, const GatherProblem& problem,
                                       Group& group, Stream& stream);
[[nodiscard]] std::int64_t workspace_bytes(const GatherOp& op, Algorithm algorithm);

/// Puts the op on its streams: a collective, then the products; or one product a chunk, beside the copies.
[[nodiscard]] Result<void> enqueue_serial(const GatherOp& op, symm::Handle* workspace);
[[nodiscard]] Result<void> enqueue_pipelined(const GatherOp& op, symm::Handle* workspace);

/// Makes, before anything of the op is enqueued, what its products would make at their first run.
[[nodiscard]] Result<void> prepare_products(const GatherOp& op, Algorithm algorithm);

/// out_i rows of `part` = part's rows of a (contiguous bytes at `units`) * b_i + bias_i, for every b.
[[nodiscard]] Result<void> multiply_rows(const GatherOp& op, const TensorView& units, Shard part,
                                         Stream& stream, ProductStep step = gemm::mm);

}  // namespace tandem::fused
