#pragma once

#include <filesystem>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>

namespace tandem::io {

/// Maps a .npy file of version 1.0 to 3.0. The tensor keeps the mapping and is read-only. If the elements are
/// not aligned, it is a copy. The file may be replaced meanwhile. It must not be shortened in place: access
/// to what is gone raises SIGBUS.
/// Types:   <f2, <f4, <f8, |u1, |i1, <u4, <i4, <i8, |b1.
/// Shapes:  up to kMaxDims dimensions; C order, or Fortran order as a strided view.
/// Errors:  kParse with the offset and the values; kUnsupported for more dimensions, or for another type,
///          with the line of Python that converts it (numpy stores bf16 and f8 of ml_dtypes without their
///          names); kInvalidArgument for what is no regular file; kDriver if the system refuses;
///          kOutOfMemory.
/// Source:  docs/design/file_formats.md
[[nodiscard]] Result<Tensor> read_npy(const std::filesystem::path& path);

/// Writes a file of version 1.0 in C order. The file appears as a whole or not at all, and replaces an
/// earlier one. A symbolic link stays, and the file that it points to is replaced.
/// Shapes:  any strides.
/// Types:   bf16 and f8 become f32.
/// Errors:  kInvalidArgument for memory that is not the host's, or a path to something that is no regular
///          file; kDriver with the system's reason; kOutOfMemory.
[[nodiscard]] Result<void> write_npy(const std::filesystem::path& path, const TensorView& tensor);

}  // namespace tandem::io
