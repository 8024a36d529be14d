#pragma once

#include <tandem/base/tensor.hpp>
#include <tandem/fused/all_gather_scaled_matmul.hpp>

namespace tandem::fused {

/// A row-wise a_scale that fits `mode` with a's dims: a 2-D [rows, 1] is seen as what it was before it was
/// flattened.
[[nodiscard]] TensorView rowwise_scale(const AllGatherScaledMatmulArgs& args, ScaleMode mode);

}  // namespace tandem::fused
