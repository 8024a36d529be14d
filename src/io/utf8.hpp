#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::io {

/// Offset of the first byte that is not part of well-formed UTF-8 (no overlong forms, no surrogates).
[[nodiscard]] std::optional<std::size_t> find_invalid_utf8(std::string_view text);

/// Appends a code point that is not a surrogate.
void append_utf8(std::string& text, char32_t code_point);

}  // namespace tandem::io
