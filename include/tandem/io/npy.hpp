#pragma once

#include <filesystem>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>

namespace tandem::io {

/// Maps a .npy file read-only; the tensor keeps the mapping. Types <f2 <f4 <f8 (and |u1 |i1 <u4 <i4 <i8 |b1), C or
/// Fortran order (a strided view), versions 1.0 to 3.0, up to kMaxDims dimensions.
/// Errors: kParse with the offset and the values; kUnsupported for another type; kDriver when it cannot be opened.
[[nodiscard]] Result<Tensor> read_npy(const std::filesystem::path& path);

/// Writes a contiguous C-order file; bf16 and f8 become f32. Appears whole or not at all: written beside the target
/// and renamed.
[[nodiscard]] Result<void> write_npy(const std::filesystem::path& path, const TensorView& tensor);

}  // namespace tandem::io
