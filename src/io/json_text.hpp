#pragma once

#include <string>
#include <string_view>
#include <tandem/base/error.hpp>

#include "io/text_cursor.hpp"

namespace tandem::io {

/// Reads a JSON string and appends what it stands for to `decoded`, if given. The cursor's text is UTF-8.
/// Errors: kParse for an unknown escape or half a surrogate pair.
[[nodiscard]] Result<void> parse_json_text(TextCursor& cursor, std::string* decoded);

/// `text`, which is UTF-8, as a JSON string with its quotes.
[[nodiscard]] std::string json_text(std::string_view text);

}  // namespace tandem::io
