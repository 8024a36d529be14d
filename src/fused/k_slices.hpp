#pragma once

#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/stream.hpp>

#include "fused/all_gather_matmul_steps.hpp"

namespace tandem::fused {

// Gathering the last dim cuts k: each rank's slice of a gives a product of full size, and out is their sum. A
// sum has to have one order to have the same bits on every rank, so slice q's product is added as soon as
// slices 0..q are here, whatever order they come in and on whichever of the two streams: rank 0 adds each
// slice as it comes; rank W-1 waits for slice 0, which comes first there; the ranks between wait longer.
// Adding products of their own into a [W, rows, n] scratch would start earlier everywhere, for W times the
// memory.

/// Makes the marks that `world` slices need, where they are not there yet.
[[nodiscard]] Result<void> make_marks(SliceMarks& marks, int world, Device& device);

class KSlices {
 public:
  /// No slice has arrived. Needs op.marks from make_marks() if the last dim is gathered, else is never used.
  explicit KSlices(const GatherOp& op);

  /// Slice `source` will be in place once the work on `stream` so far is done.
  [[nodiscard]] Result<void> arrived(int source, Stream& stream);
  /// Prepares the products of all slices for `stream`.
  [[nodiscard]] Result<void> prepare(Stream& stream) const;
  /// After all have arrived: out_i = the sum, rounded once, plus bias_i.
  [[nodiscard]] Result<void> finish(Stream& stream);

 private:
  /// [rows, k_q] contiguous.
  [[nodiscard]] TensorView slice_of(int source) const;
  /// f32 [rows, n_i].
  [[nodiscard]] TensorView sum_of(int i) const;
  [[nodiscard]] Result<void> keep(int source, Stream& stream);
  [[nodiscard]] Result<void> add(int source, Stream& stream, ProductStep step) const;

  const GatherOp& op_;
  int next_ = 0;  ///< first slice that is not in the sum
};

}  // namespace tandem::fused
