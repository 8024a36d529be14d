#pragma once

#include <tandem/base/error.hpp>
#include <tandem/base/shard.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/stream.hpp>

#include "fused/matmul_reduce_scatter_steps.hpp"

namespace tandem::fused {

/// Copies those a's whose rows cannot be read as a matrix.
[[nodiscard]] Result<void> copy_operands(const ScatterOp& op);

/// The units of `part` of this rank's own sum of a_j * b_j: added up in f32 in the order of the list, rounded
/// once to `to` (contiguous [part.size, unit]), and kept in args.product if that is wanted. `sum` is the
/// scratch of the stream's own to add up in.
[[nodiscard]] Result<void> multiply_part(const ScatterOp& op, Shard part, const TensorView& to,
                                         const TensorView& sum, Stream& stream);

/// Prepares the products of a multiply_part() of the same arguments; touches no memory.
[[nodiscard]] Result<void> prepare_part(const ScatterOp& op, Shard part, const TensorView& to,
                                        const TensorView& sum, Stream& stream);

/// to = from, rounded where the type is narrower. Shapes equal; `from` contiguous.
[[nodiscard]] Result<void> round_to(const TensorView& from, const TensorView& to, Stream& stream);

}  // namespace tandem::fused
