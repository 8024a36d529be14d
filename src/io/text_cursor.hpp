#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>

namespace tandem::io {

/// Text of a file as an error message may show it: ASCII, on one line, cut behind `most_chars`.
[[nodiscard]] std::string printable(std::string_view text, std::size_t most_chars = 64);

/// A tensor's name for a message: uncut as far as names of models go, so that it can be copied from there.
[[nodiscard]] inline std::string printable_name(std::string_view name) {
  return printable(name, 128);
}

/// Reads a file's textual header token by token, allocating nothing but errors, which name the offset in the
/// file. White space before a token is skipped. The tokens are those that JSON and Python literals share.
class TextCursor {
 public:
  TextCursor(std::string_view text, std::size_t file_offset) : text_(text), file_offset_(file_offset) {}

  /// Offset in the file of the next token.
  [[nodiscard]] std::size_t offset();
  [[nodiscard]] bool at_end() { return offset() == file_offset_ + text_.size(); }
  /// The next token's first character, 0 at the end.
  [[nodiscard]] char peek();

  /// Steps over `token` if it comes next.
  [[nodiscard]] bool take(std::string_view token);
  [[nodiscard]] Result<void> expect(std::string_view token);
  /// A whole number from 0 to 2^63 - 1 in decimal.
  [[nodiscard]] Result<std::int64_t> count();
  /// A whole number from 0 to 2^64 - 1 in decimal.
  [[nodiscard]] Result<std::uint64_t> large_count();
  /// Steps over a number as JSON writes them, whatever its value.
  [[nodiscard]] Result<void> skip_number();
  /// What stands between two `quote` characters, escapes (a backslash and one more character) left as they
  /// are.
  [[nodiscard]] Result<std::string_view> quoted(char quote);

  /// kParse: "byte 12: expected `what`, found 'x'".
  [[nodiscard]] tl::unexpected<Error> expected(std::string_view what);

 private:
  template <class Number>
  [[nodiscard]] Result<Number> whole_number(std::string_view limit);
  [[nodiscard]] bool skip_digits();

  std::string_view text_;
  std::size_t file_offset_;
  std::size_t at_ = 0;
};

}  // namespace tandem::io
