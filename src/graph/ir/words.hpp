#pragma once

#include <algorithm>
#include <string_view>

namespace tandem::graph {

/// A character of a name that the text form writes without quotes.
[[nodiscard]] inline bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

/// A word is not empty and does not begin as a number does.
[[nodiscard]] inline bool is_word(std::string_view text) {
  return !text.empty() && !(text[0] >= '0' && text[0] <= '9') && text[0] != '.' &&
         std::all_of(text.begin(), text.end(), is_word_character);
}

/// What stands between < and > as it is.
[[nodiscard]] inline bool is_plain_repr(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c >= ' ' && c <= '~' && c != '<' && c != '>'; });
}

}  // namespace tandem::graph
