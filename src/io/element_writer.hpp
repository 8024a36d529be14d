#pragma once

#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>

#include "io/whole_file.hpp"

namespace tandem::io {

/// Whether the view can be written. Errors: kInvalidArgument.
[[nodiscard]] Result<void> check_writable(const TensorView& view);

/// Writes the elements in row-major order as `dtype`. Strided or converted ones pass through a block of
/// bounded size.
[[nodiscard]] Result<void> write_elements(WholeFile& file, const TensorView& view, DType dtype);

}  // namespace tandem::io
