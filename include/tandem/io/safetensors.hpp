#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <vector>

namespace tandem::io {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// Maps a .safetensors file read-only; each tensor keeps the mapping (a copy where its elements are not
/// aligned). The file may be replaced meanwhile, but not shortened in place: touching what is gone raises
/// SIGBUS. In the header's order; of tensors that share a name the last; its `__metadata__` is left out.
/// Types:   F64 F32 F16 BF16 F8_E4M3 F8_E5M2 I64 I32 I8 U32 U8 BOOL.
/// Shapes:  up to kMaxDims dimensions, row-major.
/// Errors:  kParse with the offset or the tensor's name, and the values; kUnsupported for a tensor of another
///          type or more dimensions: the others can be read by name; kInvalidArgument for what is not a
///          regular file; kDriver when the system refuses; kOutOfMemory.
/// Source:  docs/design/file_formats.md
[[nodiscard]] Result<std::vector<NamedTensor>> read_safetensors(const std::filesystem::path& path);

/// One tensor by name; an empty name when the file holds just one. The whole header is checked all the same,
/// but of types and dimensions only this tensor's. For a model in several files see checkpoint.hpp.
/// Errors:  as above; kInvalidArgument listing names when there is none of this name.
[[nodiscard]] Result<Tensor> read_safetensors(const std::filesystem::path& path, std::string_view name);

struct NamedView {
  std::string name;
  TensorView view;
};

/// Writes the tensors with their types, the header in the order given. The views may be strided. The file
/// appears whole or not at all, as in write_npy().
/// Errors:  kInvalidArgument for a name that is repeated, reserved or not UTF-8, memory that is not the
///          host's, or a path that is no regular file's; kDriver with the system's reason; kOutOfMemory.
[[nodiscard]] Result<void> write_safetensors(const std::filesystem::path& path,
                                             const std::vector<NamedView>& tensors);

}  // namespace tandem::io
