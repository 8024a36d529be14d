#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <tandem/base/error.hpp>
#include <tandem/base/shard.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/fused/report.hpp>
#include <tandem/symm/handle.hpp>
#include <tandem/trace/enqueue_trace.hpp>

#include "base/function_ref.hpp"
#include "fused/op_memory.hpp"
#include "fused/slice_order.hpp"
#include "pipeline/schedules.hpp"

namespace tandem::fused {

// What both gather ops put on their streams, whatever they make of the tensors that arrive.

/// One tensor that is gathered. It travels in units: a unit is what one index of the gathered dim holds.
struct Carried {
  /// The caller's shard with the gathered dim in front; as it is if that is the last: units are columns then,
  /// and a shard is one slice [rows, k_q].
  TensorView front;
  std::optional<TensorView> into;  ///< the caller's tensor for all of it, gather-dim-major; none: not kept
  std::int64_t total = 0;          ///< units over all ranks
  bool by_slices = false;          ///< the last dim is gathered
  bool copies = false;             ///< front's strides need one copy
};
[[nodiscard]] Carried carry(const TensorView& shard, int dim, std::int64_t total,
                            const std::optional<TensorView>& into);
/// [s_r, unit] contiguous: the caller's memory, or scratch that front is copied to.
[[nodiscard]] TensorView carve_shard(const Carried& carried, Carver& carver);
/// Brings a shard into gather-dim-major order, by one copy if it is not.
[[nodiscard]] Result<void> copy_shard(const Carried& carried, const TensorView& shard, Stream& stream);
/// [total, unit] contiguous: the caller's memory, or scratch.
[[nodiscard]] TensorView carve_gathered(const Carried& carried, Carver& carver);

/// A part of the gathered dim that is in place: rank `source`'s.
struct Arrived {
  Shard part;
  int source = -1;  ///< -1: all ranks', by one collective
};
/// Its units, contiguous: of the own rank's those of the shard, since nobody copies them for the products.
[[nodiscard]] TensorView units_of(const TensorView& shard, const TensorView& gathered, const Arrived& arrived,
                                  const Group& group);

/// Enqueues the products of whole units.
using Multiply = FunctionRef<Result<void>(const Arrived& arrived, Stream& stream)>;

struct GatherSteps {
  Group& group;
  Stream& stream;
  SliceMarks& marks;                     ///< from make_marks() if the last dim is gathered
  std::span<const Carried> carried;      ///< the first is a
  std::span<const TensorView> shards;    ///< one each, by carve_shard()
  std::span<const TensorView> gathered;  ///< one each, by carve_gathered()
  std::optional<pipeline::ShardInPlace> in_place;
  Multiply multiply;   ///< for dims but the last
  AddSlice add_slice;  ///< for the last, in rank order
  trace::EnqueueTrace* trace;
};
[[nodiscard]] std::int64_t gather_workspace_bytes(std::span<const TensorView> gathered, int world,
                                                  Algorithm algorithm);
/// A collective a tensor, then the products; or products beside the copies, chunk by chunk.
[[nodiscard]] Result<void> enqueue_gather(const GatherSteps& steps, Algorithm algorithm,
                                          symm::Handle* workspace);

}  // namespace tandem::fused
