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
#include "fused/scatter_steps.hpp"

namespace tandem::fused {

/// One checked call with the scratch memory it works in.
struct MatmulScatterOp {
  const MatmulReduceScatterArgs& args;
  const ScatterProblem& problem;
  Group& group;
  Stream& stream;
  TensorView copies;  ///< a's that need a copy, one contiguous [rows, k_j] after the other
  ScatterMemory memory;
};
/// Finds the memory, without touching it.
[[nodiscard]] Result<MatmulScatterOp> prepare(const MatmulReduceScatterArgs& args,
                                              const ScatterProblem& problem, Algorithm algorithm,
                                              Group& group, Stream& stream);
[[nodiscard]] std::int64_t workspace_bytes(const MatmulScatterOp& op, Algorithm algorithm);

/// Makes, before anything of the op is enqueued, what its products would make at their first run.
[[nodiscard]] Result<void> prepare_products(const MatmulScatterOp& op, Algorithm algorithm);

/// For calls that come again: what enqueue() depends on besides the plan, the workspace and the streams.
template <class Key>
void add_to_key(const MatmulScatterOp& op, Key& key) {
  const MatmulReduceScatterArgs& args = op.args;
  key.add(args.a).add(args.b).add(args.out).add(args.bias).add(args.product);
  const ScatterMemory& memory = op.memory;
  key.add(op.copies.data).add(memory.stack.data).add(memory.sums[0].data).add(memory.sums[1].data);
  key.add(memory.reduced.data);
}

/// Puts the op on its streams: the products, then a collective; or one product a rank, beside the copies.
[[nodiscard]] Result<void> enqueue(const MatmulScatterOp& op, Algorithm algorithm, symm::Handle* workspace);

}  // namespace tandem::fused
