#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <utility>

#include "base/function_ref.hpp"
#include "base/try.hpp"
#include "io/mapped_file.hpp"
#include "io/safetensors_header.hpp"

namespace tandem::io {

/// A .safetensors file, mapped, and its checked header.
struct SafetensorsFile {
  std::shared_ptr<const MappedFile> file;
  SafetensorsHeader header;

  [[nodiscard]] static Result<SafetensorsFile> open(const std::filesystem::path& path) {
    TANDEM_ASSIGN(auto file, MappedFile::open(path));
    TANDEM_ASSIGN(auto header, SafetensorsHeader::parse(file->bytes()));
    return SafetensorsFile{std::move(file), std::move(header)};
  }
  /// Errors: kUnsupported, as SafetensorsHeader::shape().
  [[nodiscard]] Result<Tensor> tensor(std::size_t idx) const {
    TANDEM_ASSIGN(const TensorView shape, header.shape(idx));
    return tensor_in(file, header.offset(idx), shape);
  }
};

/// Names of tensors, wherever they come from.
struct NameList {
  std::size_t size = 0;
  FunctionRef<std::string_view(std::size_t)> name;
};
/// "'a', 'b' and 7 more": those that contain `wanted`, or, where there is none, all.
[[nodiscard]] std::string list_names(const NameList& names, std::string_view wanted);

/// The tensor `wanted`, or, if that is empty, the only one. Errors: kInvalidArgument listing the names.
[[nodiscard]] Result<std::size_t> choose_name(const NameList& names, std::string_view wanted);

}  // namespace tandem::io
