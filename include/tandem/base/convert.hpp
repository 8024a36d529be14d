#pragma once

#include <cstdint>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>

namespace tandem {

/// Copies host elements and converts them by value.
/// Shapes:  equal; any strides.
/// Types:   Floats are rounded once, to nearest even; f8 saturates. Integers are rounded towards zero; values
///          out of range saturate, and NaN becomes 0. A bool says whether the value is not 0; NaN is not 0.
/// Memory:  `to` may be `from`, element for element and with its type; nothing is done then. No other overlap
///          is allowed.
/// Errors:  kInvalidArgument for different shapes, memory that is not the host's, a read-only `to`, or
///          overlap.
[[nodiscard]] Result<void> convert(const TensorView& from, const TensorView& to);

/// One element as f64, for checks. `idx` counts in row-major order.
[[nodiscard]] double element_as_f64(const TensorView& view, std::int64_t idx);

}  // namespace tandem
