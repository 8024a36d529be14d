#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>

namespace tandem::io {

/// The tensors of a model by their names, in any number of .safetensors files. A tensor's file is opened when
/// the tensor is read. So files of tensors that nobody reads may be missing.
class Checkpoint {
 public:
  /// Opens what `path` names:
  /// - an index, whose name ends in .json, such as model.safetensors.index.json. Its "weight_map" names the
  ///   file of each tensor, in the same folder or in a folder of it;
  /// - a folder. It holds one *.safetensors.index.json, or else one *.safetensors;
  /// - any other file. It is read as a .safetensors file.
  ///
  /// Errors:  kParse with the offset and the values for an index that is damaged, is larger than 100,000,000
  ///          bytes or names a tensor twice; kInvalidArgument for a folder with no such file or several,
  ///          which are listed; as read_safetensors() for a file; kDriver if the system refuses;
  ///          kOutOfMemory.
  /// Source:  docs/design/file_formats.md
  [[nodiscard]] static Result<Checkpoint> open(const std::filesystem::path& path);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  /// The number of tensors.
  [[nodiscard]] std::size_t size() const;
  /// The name of tensor `idx`, in the order of the index or the header.
  [[nodiscard]] std::string_view name(std::size_t idx) const&;
  std::string_view name(std::size_t idx) const&& = delete;  // would dangle

  /// Reads the tensor of this name. The name may be empty if there is one tensor only. Types, shapes and
  /// memory are those of read_safetensors().
  /// Errors:  kInvalidArgument with names that exist, if this one does not; kParse for a file name that leads
  ///          out of the index's folder or does not end in .safetensors, and for a file without the tensor;
  ///          kDriver for a file that does not exist; as read_safetensors().
  [[nodiscard]] Result<Tensor> read(std::string_view name) const;

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace tandem::io
