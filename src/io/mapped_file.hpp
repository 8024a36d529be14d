#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>

namespace tandem::io {

/// A whole regular file, mapped read-only. Somebody who shortens the file in place takes the pages away
/// (SIGBUS on the next touch); replacing it by renaming, as the writers here do, is harmless.
class MappedFile {
 public:
  /// Errors: kDriver when the system refuses; kInvalidArgument for what is not a regular file (never blocks
  /// on a pipe); kParse for an empty file.
  [[nodiscard]] static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);

  MappedFile(void* data, std::size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(data_), size_bytes_};
  }

 private:
  void* data_;
  std::size_t size_bytes_;
};

/// A tensor over the elements from `offset` on, which the caller has checked to lie in the file. It keeps the
/// mapping, or, where the elements are not aligned for their type, a copy. `shape.data` is not read; its
/// strides have no holes.
[[nodiscard]] Tensor tensor_in(const std::shared_ptr<const MappedFile>& file, std::size_t offset,
                               const TensorView& shape);

/// Bytes of a tensor of these sizes, or nothing if the count, or a stride of it, overflows.
[[nodiscard]] std::optional<std::int64_t> checked_size_bytes(const Dims& sizes, DType dtype);

}  // namespace tandem::io
