#include "io/utf8.hpp"

namespace tandem::io {
namespace {

// Bytes of the well-formed sequence at the start of `text`, 0 if there is none.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t idx) { return static_cast<unsigned char>(text[idx]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
  }
  const unsigned second = byte(1);
  const bool is_overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool is_surrogate = lead == 0xed && second >= 0xa0;
  const bool is_too_large = lead == 0xf4 && second >= 0x90;
  return is_overlong || is_surrogate || is_too_large ? 0 : length;
}

}  // namespace

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = sequence_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto continuation = [&](int shift) {
    return static_cast<char>(0x80U | ((code_point >> shift) & 0x3fU));
  };
  if (code_point < 0x80) {
    text += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    text += {static_cast<char>(0xc0U | (code_point >> 6)), continuation(0)};
  } else if (code_point < 0x10000) {
    text += {static_cast<char>(0xe0U | (code_point >> 12)), continuation(6), continuation(0)};
  } else {
    text +=
        {static_cast<char>(0xf0U | (code_point >> 18)), continuation(12), continuation(6), continuation(0)};
  }
}

}  // namespace tandem::io
