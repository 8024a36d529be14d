#include "fused/gather_steps.hpp"

#include <algorithm>

#include "base/try.hpp"
#include "coll/steps.hpp"

namespace tandem::fused {
namespace {

std::int64_t unit_elements(const Carried& carried) {
  const Dims& sizes = carried.front.sizes;
  std::int64_t product = 1;
  for (int d = 0; d < sizes.size(); ++d) {
    if (d != (carried.by_slices ? sizes.size() - 1 : 0)) product *= sizes[d];
  }
  return product;
}

std::int64_t own_units(const Carried& carried) {
  return carried.by_slices ? carried.front.sizes.back() : carried.front.size(0);
}

/// Slices are not in the caller's order in memory: each goes to its columns by a copy of its own.
Result<void> keep_slices(const GatherSteps& steps, int source, Stream& stream) {
  for (std::size_t i = 0; i < steps.carried.size(); ++i) {
    const Carried& carried = steps.carried[i];
    if (!carried.into) continue;
    const Shard part = shard_of(carried.total, steps.group.size(), source);
    const TensorView columns = carried.into->flatten_rows().narrow(1, part.offset, part.size);
    const TensorView units = units_of(steps.shards[i], steps.gathered[i], {part, source}, steps.group);
    const TensorView slice = TensorView::contiguous(units.data, columns.sizes, units.dtype, units.device);
    TANDEM_TRY(stream.copy(slice, columns));
  }
  return {};
}

Result<void> slice_arrived(const GatherSteps& steps, SliceOrder& order, int source, Stream& stream) {
  TANDEM_TRY(keep_slices(steps, source, stream));
  return order.arrived(source, stream);
}

Result<void> enqueue_serial(const GatherSteps& steps, symm::Handle* workspace) {
  for (std::size_t i = 0; i < steps.carried.size(); ++i) {
    TANDEM_TRY(coll::enqueue_all_gather({.input = steps.shards[i], .output = steps.gathered[i]}, workspace,
                                        steps.group, steps.stream));
  }
  if (!steps.carried.front().by_slices) {
    return steps.multiply({{0, steps.carried.front().total}, -1}, steps.stream);
  }
  SliceOrder order(steps.marks, steps.group.size(), steps.add_slice);
  for (int source = 0; source < steps.group.size(); ++source) {
    TANDEM_TRY(slice_arrived(steps, order, source, steps.stream));
  }
  return {};
}

Result<void> enqueue_pipelined(const GatherSteps& steps, symm::Handle* workspace) {
  const Carried& a = steps.carried.front();
  SliceOrder order(steps.marks, steps.group.size(), steps.add_slice);
  const auto consume = [&](std::span<const TensorView>, int source, Stream& stream) -> Result<void> {
    if (a.by_slices) return slice_arrived(steps, order, source, stream);
    return steps.multiply({shard_of(a.total, steps.group.size(), source), source}, stream);
  };
  const bool keeps_any = std::any_of(steps.carried.begin(), steps.carried.end(),
                                     [](const Carried& carried) { return carried.into.has_value(); });
  return pipeline::gather_and_consume({.shards = steps.shards,
                                       .gathered = steps.gathered,
                                       .keep_own = keeps_any && !a.by_slices,
                                       .in_place = steps.in_place,
                                       .consumer = consume,
                                       .trace = steps.trace},
                                      *workspace, stream_pair(steps.group, steps.stream));
}

}  // namespace

Carried carry(const TensorView& shard, int dim, std::int64_t total, const std::optional<TensorView>& into) {
  const bool by_slices = dim == shard.dim() - 1;
  Carried carried{.front = by_slices ? shard : shard.movedim(dim, 0),
                  .into = into,
                  .total = total,
                  .by_slices = by_slices,
                  .copies = false};
  carried.copies = !carried.front.is_contiguous();
  return carried;
}

TensorView carve_shard(const Carried& carried, Carver& carver) {
  const TensorView& front = carried.front;
  const Dims sizes = {own_units(carried), unit_elements(carried)};
  return carried.copies ? carver.take(sizes, front.dtype, front.device)
                        : TensorView::contiguous(front.data, sizes, front.dtype, front.device);
}

Result<void> copy_shard(const Carried& carried, const TensorView& shard, Stream& stream) {
  if (!carried.copies) return {};
  const TensorView& front = carried.front;
  return stream.copy(front, TensorView::contiguous(shard.data, front.sizes, front.dtype, front.device));
}

TensorView carve_gathered(const Carried& carried, Carver& carver) {
  const TensorView& front = carried.front;
  const Dims sizes = {carried.total, unit_elements(carried)};
  // Only whole units can be gathered into the caller's tensor.
  return carried.into && !carried.by_slices
             ? TensorView::contiguous(carried.into->data, sizes, front.dtype, front.device)
             : carver.take(sizes, front.dtype, front.device);
}

TensorView units_of(const TensorView& shard, const TensorView& gathered, const Arrived& arrived,
                    const Group& group) {
  if (arrived.source == group.rank()) return shard;
  return gathered.narrow(0, arrived.part.offset, arrived.part.size);
}

std::int64_t gather_workspace_bytes(std::span<const TensorView> gathered, int world, Algorithm algorithm) {
  if (algorithm != Algorithm::kSerial) return pipeline::gather_workspace_bytes(gathered, world);
  std::int64_t num_bytes = 0;
  for (const TensorView& one : gathered) {
    num_bytes = std::max(num_bytes, coll::all_gather_workspace_bytes(one, world));
  }
  return num_bytes;
}

Result<void> enqueue_gather(const GatherSteps& steps, Algorithm algorithm, symm::Handle* workspace) {
  for (std::size_t i = 0; i < steps.carried.size(); ++i)
    TANDEM_TRY(copy_shard(steps.carried[i], steps.shards[i], steps.stream));
  return algorithm == Algorithm::kSerial ? enqueue_serial(steps, workspace)
                                         : enqueue_pipelined(steps, workspace);
}

}  // namespace tandem::fused
