#pragma once

#include <cstdint>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>

namespace tandem {

/// Copies host elements, converting the type by value. To a float: rounded once, to nearest even; f8
/// saturates. To an integer: towards zero; out of range saturates, NaN is 0. To bool: whether it is not 0
/// (NaN is not).
/// Shapes:  equal; any strides.
/// Memory:  `to` may be `from`, element for element and of its type: then nothing is done. No other overlap.
/// Errors:  kInvalidArgument on different shapes, memory that is not the host's, or overlap (tensor.hpp).
[[nodiscard]] Result<void> convert(const TensorView& from, const TensorView& to);

/// One element as f64, for checks. `idx` counts in row-major order over the sizes.
[[nodiscard]] double element_as_f64(const TensorView& view, std::int64_t idx);

}  // namespace tandem
