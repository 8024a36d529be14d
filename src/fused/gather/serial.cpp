#include <algorithm>

#include "coll/steps.hpp"
#include "fused/gather/algorithms.hpp"

namespace tandem::fused {

using program::all_of;
using program::kCurrent;

/// A collective a tensor, then the products.
GatherProgram build_serial_gather(const GatherProblem& problem, int rank, const Device& device) {
  if (problem.num_hosts > 1) return build_gather_across_hosts(problem, Algorithm::kSerial, rank);
  GatherBuilder gather(problem, Algorithm::kSerial, rank, 1);
  gather.add_gathered();
  gather.copy_shards();
  std::int64_t& workspace_bytes = gather.steps().memory().workspace_bytes;
  for (int i = 0; i < static_cast<int>(gather.tensors().size()); ++i) {
    const Travelling& tensor = gather.tensors()[static_cast<std::size_t>(i)];
    const Dims units = {tensor.total, tensor.unit_elements()};
    const TensorView whole = TensorView::contiguous(nullptr, units, tensor.dtype);
    workspace_bytes =
        std::max(workspace_bytes, coll::all_gather_workspace_bytes(whole, problem.world, device));
    const std::int64_t own = tensor.part_of(problem.world, rank).size;
    const program::RootId shard =
        tensor.by_slices ? gather.add_flat(i, {own, tensor.unit_elements()}) : gather.travel(i).shard;
    gather.steps().all_gather(kCurrent, all_of(shard), all_of(gather.travel(i).gathered));
  }
  if (!problem.gathers_last()) {
    gather.multiply(kCurrent, gather.all());
  } else {
    for (int source = 0; source < problem.world; ++source) gather.slice_arrived(kCurrent, source);
    gather.finish_slices();
  }
  return {gather.take(), gather.roots()};
}

}  // namespace tandem::fused
