#pragma once

#include <tandem/base/tensor.hpp>
#include <tandem/fused/all_gather_scaled_matmul.hpp>

namespace tandem::fused {

/// An a_scale by rows or blocks that fits `mode` with a's dims: a 2-D [rows, columns] is seen as what it was
/// before it was flattened.
[[nodiscard]] TensorView scale_of_rows(const AllGatherScaledMatmulArgs& args, ScaleMode mode);

}  // namespace tandem::fused
