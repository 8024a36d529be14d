#include "io/weight_map.hpp"

#include <algorithm>
#include <numeric>

#include "base/format.hpp"
#include "base/try.hpp"
#include "io/json_text.hpp"
#include "io/text_cursor.hpp"
#include "io/utf8.hpp"

namespace tandem::io {
namespace {

constexpr std::string_view kMapKey = "weight_map";
// "":"",
constexpr std::size_t kFewestBytesPerEntry = 6;

}  // namespace

Result<WeightMap> WeightMap::parse(std::string_view text) {
  if (const auto invalid = find_invalid_utf8(text)) {
    return failf(ErrorCode::kParse, "byte {}: the index is not UTF-8", *invalid);
  }
  WeightMap map;
  // What will not be used is never touched, so it costs addresses but no memory.
  map.texts_.reserve(text.size());
  map.entries_.reserve(text.size() / kFewestBytesPerEntry);
  bool has_map = false;
  TextCursor cursor(text, 0);
  const auto parse_entry = [&]() -> Result<void> {
    Entry entry;
    entry.name_at = static_cast<std::uint32_t>(map.texts_.size());
    TANDEM_TRY(parse_json_text(cursor, &map.texts_));
    entry.file_at = static_cast<std::uint32_t>(map.texts_.size());
    entry.name_size = entry.file_at - entry.name_at;
    TANDEM_TRY(cursor.expect(":"));
    TANDEM_TRY(parse_json_text(cursor, &map.texts_));
    entry.file_size = static_cast<std::uint32_t>(map.texts_.size()) - entry.file_at;
    map.entries_.push_back(entry);
    return {};
  };
  const auto parse_member = [&]() -> Result<void> {
    TextCursor key_start = cursor;
    const std::size_t key_at = map.texts_.size();
    TANDEM_TRY(parse_json_text(cursor, &map.texts_));
    const bool is_map = std::string_view(map.texts_).substr(key_at) == kMapKey;
    map.texts_.resize(key_at);
    TANDEM_TRY(cursor.expect(":"));
    if (!is_map) return skip_json_value(cursor, 1);
    if (has_map) return key_start.expected(fmt::format("no second '{}'", kMapKey));
    has_map = true;
    return parse_json_list(cursor, "{", "}", parse_entry);
  };
  TANDEM_TRY(parse_json_list(cursor, "{", "}", parse_member));
  if (!cursor.at_end()) return cursor.expected("nothing but white space behind the index's '}'");
  if (!has_map) {
    return failf(ErrorCode::kParse, "has no '{}': is it the index of a model in several files?", kMapKey);
  }
  TANDEM_TRY(map.check_names());
  return map;
}

WeightMap WeightMap::of_file(std::string_view file, const SafetensorsHeader& header) {
  WeightMap map;
  map.texts_ = file;
  map.entries_.reserve(header.size());
  for (std::size_t i = 0; i < header.size(); ++i) {
    const std::string_view name = header.name(i);
    map.entries_.push_back({static_cast<std::uint32_t>(map.texts_.size()),
                            static_cast<std::uint32_t>(name.size()), 0,
                            static_cast<std::uint32_t>(file.size())});
    map.texts_ += name;
  }
  return map;
}

Result<void> WeightMap::check_names() const {
  std::vector<std::uint32_t> order(size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) { return name(x) < name(y); });
  const auto twice = std::adjacent_find(order.begin(), order.end(),
                                        [&](std::size_t x, std::size_t y) { return name(x) == name(y); });
  if (twice == order.end()) return {};
  return failf(ErrorCode::kParse, "two entries have the name '{}'", printable_name(name(*twice)));
}

}  // namespace tandem::io
