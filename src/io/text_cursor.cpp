#include "io/text_cursor.hpp"

#include <charconv>

#include "base/format.hpp"

namespace tandem::io {

std::string printable(std::string_view text, std::size_t most_chars) {
  std::string shown;
  for (const char c : text.substr(0, most_chars)) {
    const bool is_plain = c >= ' ' && c <= '~' && c != '\\';
    shown += is_plain ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return text.size() > most_chars ? shown + "..." : shown;
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

template <class Number>
Result<Number> TextCursor::whole_number(std::string_view limit) {
  const char first = peek();
  if (first < '0' || first > '9') return expected("a whole number of 0 or more");
  Number value = 0;
  const char* begin = text_.data() + at_;
  const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
  const std::string_view digits(begin, static_cast<std::size_t>(end - begin));
  if (error != std::errc()) return expected(fmt::format("a number below {}", limit));
  if (first == '0' && digits.size() > 1) return expected("a number without leading zeros");
  at_ += digits.size();
  return value;
}

Result<std::int64_t> TextCursor::count() {
  return whole_number<std::int64_t>("2^63");
}

Result<std::uint64_t> TextCursor::large_count() {
  return whole_number<std::uint64_t>("2^64");
}

bool TextCursor::skip_digits() {
  const std::size_t begin = at_;
  while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
  return at_ > begin;
}

Result<void> TextCursor::skip_number() {
  TextCursor start = *this;
  const auto next_is = [&](std::string_view chars) {
    return at_ < text_.size() && chars.find(text_[at_]) != std::string_view::npos;
  };
  (void)peek();
  if (next_is("-")) ++at_;
  const bool has_leading_zero = next_is("0");
  const std::size_t begin = at_;
  bool is_number = skip_digits() && !(has_leading_zero && at_ > begin + 1);
  if (is_number && next_is(".")) {
    ++at_;
    is_number = skip_digits();
  }
  if (is_number && next_is("eE")) {
    ++at_;
    if (next_is("+-")) ++at_;
    is_number = skip_digits();
  }
  if (!is_number) return start.expected("a value");
  return {};
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
  if (at_end())
    return failf(ErrorCode::kParse, "byte {}: expected {}, found the end of the text", next, what);
  return failf(ErrorCode::kParse, "byte {}: expected {}, found '{}'", next, what,
               printable(text_.substr(at_, 20)));
}

}  // namespace tandem::io
