#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tandem/base/error.hpp>

#include "base/try.hpp"
#include "io/text_cursor.hpp"

namespace tandem::io {

/// Reads a JSON string and appends what it stands for to `decoded`, if given. The cursor's text is UTF-8.
/// Errors: kParse for an unknown escape or half a surrogate pair.
[[nodiscard]] Result<void> parse_json_text(TextCursor& cursor, std::string* decoded);

/// How deep objects and lists may lie in each other, the outermost counted, as in the original readers.
inline constexpr int kMostJsonLevels = 127;

/// Steps over any JSON value, which stands `num_levels` objects or lists deep.
/// Errors: kParse for what is no value, or one that goes deeper than kMostJsonLevels.
[[nodiscard]] Result<void> skip_json_value(TextCursor& cursor, int num_levels);

/// Calls `parse_item` for each item of a list in `open` ... `close`.
template <class ParseItem>
[[nodiscard]] Result<void> parse_json_list(TextCursor& cursor, std::string_view open, std::string_view close,
                                           ParseItem&& parse_item) {
  TANDEM_TRY(cursor.expect(open));
  if (cursor.take(close)) return {};
  for (;;) {
    TANDEM_TRY(parse_item());
    if (cursor.take(close)) return {};
    if (!cursor.take(",")) return cursor.expected(fmt::format("',' or '{}'", close));
  }
}

/// `text`, which is UTF-8, as a JSON string with its quotes.
[[nodiscard]] std::string json_text(std::string_view text);

}  // namespace tandem::io
