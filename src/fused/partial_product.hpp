#pragma once

#include <tandem/base/error.hpp>
#include <tandem/device/stream.hpp>

#include "fused/matmul_reduce_scatter_steps.hpp"

namespace tandem::fused {

/// Copies those a's whose rows cannot be read as a matrix.
[[nodiscard]] Result<void> copy_operands(const MatmulScatterOp& op);

/// This rank's own sum of a_j * b_j for one part: added up in f32 in the order of the list, rounded once.
[[nodiscard]] Result<void> multiply_partial(const MatmulScatterOp& op, const Partial& partial,
                                            Stream& stream);

/// Prepares the products of a multiply_partial() of the same arguments; touches no memory.
[[nodiscard]] Result<void> prepare_partial(const MatmulScatterOp& op, const Partial& partial, Stream& stream);

}  // namespace tandem::fused
