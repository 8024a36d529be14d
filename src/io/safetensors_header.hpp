#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <vector>

namespace tandem::io {

/// The directory of a .safetensors file. While a file is checked, at most twice the memory of the text of its
/// header is used on top of it, whatever the text.
class SafetensorsHeader {
 public:
  /// Parses and checks the header of a whole file, its size included. Keeps pointing into `file`. Tensors
  /// whose type or shape a TensorView has not are no error here, but in shape().
  [[nodiscard]] static Result<SafetensorsHeader> parse(std::span<const std::byte> file);

  // The tensors, in the header's order; where a name comes twice, the last of them.
  [[nodiscard]] std::size_t size() const { return records_.size(); }
  [[nodiscard]] std::string_view name(std::size_t idx) const { return name_of(records_[idx]); }
  /// Where the elements begin in the file.
  [[nodiscard]] std::size_t offset(std::size_t idx) const { return data_offset_ + records_[idx].begin; }
  /// Sizes, strides and type; no data. Errors: kUnsupported for a type or a shape that a TensorView has not.
  [[nodiscard]] Result<TensorView> shape(std::size_t idx) const;

 private:
  /// 32 bytes; the shortest text of a tensor has 17.
  struct Record {
    std::uint64_t begin = 0;  // in the data
    std::uint64_t end = 0;
    std::uint32_t name_at = 0;  // in names_
    std::uint32_t name_size = 0;
    std::uint32_t type_at = 0;   // in text_
    std::uint32_t sizes_at = 0;  // in text_
  };
  class Parser;

  [[nodiscard]] std::string_view name_of(const Record& record) const {
    return std::string_view(names_).substr(record.name_at, record.name_size);
  }
  [[nodiscard]] std::string type_name(const Record& record) const;
  /// "U8 [2, 3]".
  [[nodiscard]] std::string type_and_sizes(const Record& record) const;
  /// Returns a name that came more than once, in quotes, or nothing.
  std::string keep_last_of_each_name();
  void sort_as_in_text();
  [[nodiscard]] Result<void> check_sizes(std::uint64_t data_bytes) const;
  [[nodiscard]] Result<void> check_ranges(std::uint64_t data_bytes);

  std::string_view text_;
  std::string names_;  // all names, one after the other, without escapes
  std::vector<Record> records_;
  std::size_t data_offset_ = 0;
};

/// What a header says of one tensor; `begin` is relative to the data.
struct TensorEntry {
  std::string_view name;
  DType dtype = DType::kF32;
  Dims sizes;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};
/// The length and the text of a header; its size is a multiple of 8.
[[nodiscard]] std::string format_safetensors_header(std::span<const TensorEntry> entries);

/// Key of the header that is not a tensor but holds texts about the file.
inline constexpr std::string_view kMetadataKey = "__metadata__";
inline constexpr std::size_t kMaxSafetensorsHeaderBytes = 100'000'000;

}  // namespace tandem::io
