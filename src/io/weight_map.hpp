#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <vector>

#include "io/safetensors_header.hpp"

namespace tandem::io {

/// Which file holds which tensor: the "weight_map" of an index.
class WeightMap {
 public:
  /// Parses an index. At most five times the memory of its text is used on top of it, whatever the
  /// text. What the file names lead to is not judged.
  /// Errors: kParse with the offset; for a name that comes twice, the name.
  [[nodiscard]] static Result<WeightMap> parse(std::string_view text);

  /// A map of one file.
  [[nodiscard]] static WeightMap of_file(std::string_view file, const SafetensorsHeader& header);

  // In the index's order.
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] std::string_view name(std::size_t idx) const {
    return std::string_view(texts_).substr(entries_[idx].name_at, entries_[idx].name_size);
  }
  [[nodiscard]] std::string_view file(std::size_t idx) const {
    return std::string_view(texts_).substr(entries_[idx].file_at, entries_[idx].file_size);
  }

 private:
  struct Entry {
    std::uint32_t name_at = 0;  // in texts_
    std::uint32_t name_size = 0;
    std::uint32_t file_at = 0;
    std::uint32_t file_size = 0;
  };
  [[nodiscard]] Result<void> check_names() const;

  std::string texts_;  // without escapes
  std::vector<Entry> entries_;
};

/// The limit of a header, which lists as many tensors.
inline constexpr std::size_t kMaxIndexBytes = 100'000'000;

}  // namespace tandem::io
