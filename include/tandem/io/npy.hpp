#pragma once

#include <filesystem>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>

namespace tandem::io {

/// Maps a .npy file read-only; the tensor keeps the mapping (a copy where the elements are not aligned). The
/// file may be replaced meanwhile, but not shortened in place: touching what is gone raises SIGBUS.
/// Types:   <f2 <f4 <f8 |u1 |i1 <u4 <i4 <i8 |b1.
/// Shapes:  up to kMaxDims dimensions; C order, or Fortran order as a strided view. Versions 1.0 to 3.0.
/// Errors:  kParse with the offset and the values; kUnsupported for another type, with the line of Python
///          that converts it (numpy stores bf16 and f8 of ml_dtypes without their names), or more dimensions;
///          kInvalidArgument for what is not a regular file; kDriver when the system refuses; kOutOfMemory.
/// Source:  docs/design/file_formats.md
[[nodiscard]] Result<Tensor> read_npy(const std::filesystem::path& path);

/// Writes a C-order file, version 1.0; bf16 and f8 become f32. The view may be strided. The file appears
/// whole or not at all, replacing what was there; what a symbolic link points to is replaced, the link stays.
/// Errors:  kInvalidArgument for memory that is not the host's or a name that is no regular file's; kDriver
///          with the system's reason; kOutOfMemory.
[[nodiscard]] Result<void> write_npy(const std::filesystem::path& path, const TensorView& tensor);

}  // namespace tandem::io
