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

/// Maps a .safetensors file read-only; each tensor keeps the mapping. F64 F32 F16 BF16 F8_E4M3 F8_E5M2 I64 I32 I8 U32
/// U8 BOOL. The header's length, offsets, sizes, overlaps and holes are all checked.
/// Errors: kParse with the tensor's name and the values; kUnsupported for another type; kDriver.
[[nodiscard]] Result<std::vector<NamedTensor>> read_safetensors(const std::filesystem::path& path);

/// One tensor by name; an empty name when the file holds just one. Errors: kInvalidArgument listing the names.
[[nodiscard]] Result<Tensor> read_safetensors(const std::filesystem::path& path, std::string_view name);

struct NamedView {
  std::string name;
  TensorView view;
};
/// Appears whole or not at all. The views may be strided.
[[nodiscard]] Result<void> write_safetensors(const std::filesystem::path& path, const std::vector<NamedView>& tensors);

}  // namespace tandem::io
