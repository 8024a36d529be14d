#pragma once

#include <cstdint>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>

namespace tandem {

/// Copies host elements, converting the type. Narrowing rounds to nearest even, f8 saturates; integers to
/// floats and back by value (out-of-range integers saturate).
/// Shapes:  equal; any strides.
/// Errors:  kInvalidArgument on different shapes or memory that is not the host's.
[[nodiscard]] Result<void> convert(const TensorView& from, const TensorView& to);

/// One element as f64, for checks. `idx` counts in row-major order over the sizes.
[[nodiscard]] double element_as_f64(const TensorView& view, std::int64_t idx);

}  // namespace tandem
