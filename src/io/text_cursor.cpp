#include "io/text_cursor.hpp"

#include <charconv>

#include "base/format.hpp"

namespace tandem::io {

std::string printable(std::string_view text) {
  constexpr std::size_t kMostChars = 64;
  std::string shown;
  for (const char c : text.substr(0, kMostChars)) {
    const bool is_plain = c >= ' ' && c <= '~' && c != '\\';
    shown += is_plain ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return text.size() > kMostChars ? shown + "..." : shown;
}

std::size_t TextCursor::offset() {
  while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  return file_offset_ + at_;
}

char TextCursor::peek() {
  return at_end() ? '\0' : text_[at_];
}

bool TextCursor::take(std::string_view token) {
  if (at_end() || text_.substr(at_, token.size()) != token) return false;
  at_ += token.size();
  return true;
}

Result<void> TextCursor::expect(std::string_view token) {
  if (take(token)) return {};
  return expected(fmt::format("'{}'", token));
}

Result<std::int64_t> TextCursor::count() {
  const char first = peek();
  if (first < '0' || first > '9') return expected("a whole number of 0 or more");
  std::int64_t value = 0;
  const char* begin = text_.data() + at_;
  const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
  const std::string_view digits(begin, static_cast<std::size_t>(end - begin));
  if (error != std::errc()) return expected("a number below 2^63");
  if (first == '0' && digits.size() > 1) return expected("a number without leading zeros");
  at_ += digits.size();
  return value;
}

Result<std::string_view> TextCursor::quoted(char quote) {
  if (!take(std::string_view(&quote, 1))) return expected(fmt::format("a text in {0}...{0}", quote));
  const std::size_t begin = at_;
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (c == quote) return text_.substr(begin, at_++ - begin);
    if (static_cast<unsigned char>(c) < ' ') return expected("no control character in a text");
    if (c == '\\' && at_ + 1 < text_.size()) ++at_;
  }
  return expected(fmt::format("the closing {}", quote));
}

tl::unexpected<Error> TextCursor::expected(std::string_view what) {
  const std::size_t next = offset();
  if (at_end()) return failf(ErrorCode::kParse, "byte {}: expected {}, found the header's end", next, what);
  return failf(ErrorCode::kParse, "byte {}: expected {}, found '{}'", next, what,
               printable(text_.substr(at_, 20)));
}

}  // namespace tandem::io
