#pragma once

#include <tandem/base/error.hpp>
#include <tandem/device/stream.hpp>

#include "fused/all_gather_matmul_steps.hpp"

namespace tandem::fused {

// Products of slices of k, added up in the order of slice_order.hpp.

/// op.sums += slice * its rows of b, for every b; slice 0 overwrites them.
[[nodiscard]] Result<void> add_slice(const GatherOp& op, int source, Stream& stream, ProductStep step);
/// After all have been added: out_i = the sum, rounded once, plus bias_i.
[[nodiscard]] Result<void> finish_slices(const GatherOp& op, Stream& stream);

}  // namespace tandem::fused
