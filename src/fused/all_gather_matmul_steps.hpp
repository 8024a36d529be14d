#pragma once

#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/fused/all_gather_matmul.hpp>
#include <tandem/symm/handle.hpp>

#include "base/function_ref.hpp"
#include "fused/all_gather_matmul_check.hpp"
#include "fused/gather_steps.hpp"
#include "fused/op_memory.hpp"

namespace tandem::fused {

/// One checked call with the memory it works in.
struct GatherOp {
  const AllGatherMatmulArgs& args;
  const GatherProblem& problem;
  Group& group;
  Stream& stream;
  SliceMarks& marks;
  Carried a;
  TensorView shard;     ///< a's, by carve_shard()
  TensorView gathered;  ///< all of a, by carve_gathered(); of native ops a slot of the group's line
  TensorView
      sums;  ///< f32 [rows * sum_n]: one [rows, n_i] after the other; only when the last dim is gathered
};
/// Finds the memory, without touching it.
[[nodiscard]] Result<GatherOp> prepare(const AllGatherMatmulArgs& args, const GatherProblem& problem,
                                       Algorithm algorithm, Group& group, Stream& stream);
[[nodiscard]] std::int64_t workspace_bytes(const GatherOp& op, Algorithm algorithm);

/// For calls that come again: what enqueue() depends on besides the plan, the workspace and the streams.
template <class Key>
void add_to_key(const GatherOp& op, Key& key) {
  const AllGatherMatmulArgs& args = op.args;
  key.add(args.a).add(args.b).add(args.out).add(args.gathered).add(args.bias).add(args.a_handle.get());
  key.add(op.shard.data).add(op.gathered.data).add(op.sums.data);
}

/// Puts the op on its streams: a collective, then the products; or one product a chunk, beside the copies.
[[nodiscard]] Result<void> enqueue(const GatherOp& op, Algorithm algorithm, symm::Handle* workspace);

/// out_i's rows of what has arrived = those rows of a * b_i + bias_i, for the b's that `takes` says.
[[nodiscard]] Result<void> multiply_rows(const GatherOp& op, const Arrived& arrived, Stream& stream,
                                         ProductStep step, FunctionRef<bool(std::size_t i)> takes);

/// Makes, before anything of the op is enqueued, what its products would make at their first run.
[[nodiscard]] Result<void> prepare_products(const GatherOp& op, Algorithm algorithm);

}  // namespace tandem::fused
