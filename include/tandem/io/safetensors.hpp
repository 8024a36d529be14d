#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <vector>

namespace tandem::io {

/// A tensor of a file.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// Maps a .safetensors file and returns its tensors in the header's order. Each tensor keeps the mapping and
/// is read-only. If its elements are not aligned, it is a copy. Of tensors with the same name the last
/// counts. `__metadata__` is ignored. The file may be replaced meanwhile. It must not be shortened in place:
/// access to what is gone raises SIGBUS.
/// Types:   F64, F32, F16, BF16, F8_E4M3, F8_E5M2, I64, I32, I8, U32, U8, BOOL.
/// Shapes:  up to kMaxDims dimensions, row-major.
/// Errors:  kParse with the offset or the tensor's name, and the values; kUnsupported for a tensor of another
///          type or more dimensions (the others can be read by name); kInvalidArgument for what is no regular
///          file; kDriver if the system refuses; kOutOfMemory.
/// Source:  docs/design/file_formats.md
[[nodiscard]] Result<std::vector<NamedTensor>> read_safetensors(const std::filesystem::path& path);

/// Reads one tensor by its name. The name may be empty if the file holds one tensor only. The whole header is
/// checked, but types and dimensions of this tensor only. For a model in several files see checkpoint.hpp.
/// Errors:  as above; kInvalidArgument with names that exist, if this one does not.
[[nodiscard]] Result<Tensor> read_safetensors(const std::filesystem::path& path, std::string_view name);

/// A tensor to write.
struct NamedView {
  std::string name;
  TensorView view;
};

/// Writes the tensors in the given order. The file appears as a whole or not at all, as in write_npy().
/// Shapes:  any strides.
/// Types:   are kept.
/// Errors:  kInvalidArgument for a name that is repeated, reserved or not UTF-8, for memory that is not the
///          host's, and for a path to something that is no regular file; kDriver with the system's reason;
///          kOutOfMemory.
[[nodiscard]] Result<void> write_safetensors(const std::filesystem::path& path,
                                             const std::vector<NamedView>& tensors);

}  // namespace tandem::io
