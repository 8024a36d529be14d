#pragma once

#include <tandem/base/error.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>

#include "base/function_ref.hpp"
#include "fused/op_memory.hpp"

namespace tandem::fused {

// Gathering the last dim cuts k: each rank's slice of a gives a product of full size, and out is their sum. A
// sum has to have one order to have the same bits on every rank, so slice q's product is added as soon as
// slices 0..q are here, whatever order they come in and on whichever of the two streams: rank 0 adds each
// slice as it comes; rank W-1 waits for slice 0, which comes first there; the ranks between wait longer.
// Adding products of their own into a [W, rows, n] scratch would start earlier everywhere, for W times the
// memory.

/// Makes the marks that `world` slices need, where they are not there yet.
[[nodiscard]] Result<void> make_marks(SliceMarks& marks, int world, Device& device);

/// Enqueues the adding of slice `source`.
using AddSlice = FunctionRef<Result<void>(int source, Stream& stream)>;

/// Calls an AddSlice for slices 0, 1, ... in this order.
class SliceOrder {
 public:
  /// No slice has arrived. Needs `marks` from make_marks().
  SliceOrder(SliceMarks& marks, int world, AddSlice add);

  /// Slice `source` will be in place once the work on `stream` so far is done.
  [[nodiscard]] Result<void> arrived(int source, Stream& stream);

 private:
  SliceMarks& marks_;
  int world_;
  AddSlice add_;
  int next_ = 0;  ///< first slice that is not in the sum
};

}  // namespace tandem::fused
