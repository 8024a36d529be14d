#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>

namespace tandem::io {

/// The tensors of a model by their names, whichever of its .safetensors files they stand in. A tensor's file
/// is opened when the tensor is read: files of tensors that nobody asks for may be missing.
class Checkpoint {
 public:
  /// `path` is one of
  ///   an index (a name that ends in .json, such as model.safetensors.index.json): its "weight_map" says
  ///     which file of the same folder, or of a folder in it, holds which tensor;
  ///   a folder: the one *.safetensors.index.json in it, or, where there is none, the one *.safetensors;
  ///   any other file, which is then a .safetensors file itself.
  /// Errors:  kParse with the offset and the values for an index that is damaged, larger than 100,000,000
  ///          bytes or names a tensor twice; kInvalidArgument for a folder with none or several, which are
  ///          listed; as read_safetensors() for a file; kDriver when the system refuses; kOutOfMemory.
  /// Source:  docs/design/file_formats.md
  [[nodiscard]] static Result<Checkpoint> open(const std::filesystem::path& path);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  // The names, in the order of the index or the header.
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] std::string_view name(std::size_t idx) const&;
  std::string_view name(std::size_t idx) const&& = delete;  // would dangle

  /// The tensor of this name; an empty name when there is just one. Types, shapes and memory are those of
  /// read_safetensors().
  /// Errors:  kInvalidArgument listing names when there is none of this name; kParse for a file name that
  ///          leads out of the index's folder or is no .safetensors file's, and for a file that does not hold
  ///          the tensor; kDriver for a file that is not there; as read_safetensors().
  [[nodiscard]] Result<Tensor> read(std::string_view name) const;

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace tandem::io
