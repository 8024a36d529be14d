#include "io/json_text.hpp"

#include <charconv>
#include <cstdint>
#include <optional>

#include "base/format.hpp"
#include "base/try.hpp"
#include "io/utf8.hpp"

namespace tandem::io {
namespace {

/// The code unit of the four hex digits at the start of `text`.
std::optional<std::uint32_t> code_unit(std::string_view text) {
  if (text.size() < 4) return std::nullopt;
  std::uint32_t unit = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + 4, unit, 16);
  if (error != std::errc() || end != text.data() + 4) return std::nullopt;
  return unit;
}

struct Escape {
  std::size_t size = 0;
  char32_t code_point = 0;
};

/// The escape at the start of `text`, which begins with a backslash.
std::optional<Escape> parse_escape(std::string_view text) {
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
  if (text.size() < 2) return std::nullopt;
  if (const std::size_t at = kNames.find(text[1]); at != std::string_view::npos) {
    return Escape{2, static_cast<char32_t>(kValues[at])};
  }
  if (text[1] != 'u') return std::nullopt;
  const auto unit = code_unit(text.substr(2));
  if (!unit || (*unit >= 0xdc00 && *unit < 0xe000)) return std::nullopt;
  if (*unit < 0xd800 || *unit >= 0xe000) return Escape{6, *unit};
  if (text.substr(6, 2) != "\\u") return std::nullopt;
  const auto low = code_unit(text.substr(8));
  if (!low || *low < 0xdc00 || *low >= 0xe000) return std::nullopt;
  return Escape{12, 0x10000 + ((*unit - 0xd800) << 10) + (*low - 0xdc00)};
}

}  // namespace

Result<void> parse_json_text(TextCursor& cursor, std::string* decoded) {
  const std::size_t offset = cursor.offset();
  TANDEM_ASSIGN(std::string_view rest, cursor.quoted('"'));
  while (!rest.empty()) {
    const std::size_t plain = rest.find('\\');
    if (decoded != nullptr) decoded->append(rest.substr(0, plain));
    if (plain == std::string_view::npos) break;
    rest.remove_prefix(plain);
    const auto escape = parse_escape(rest);
    if (!escape) {
      return failf(ErrorCode::kParse, "byte {}: the text has an escape '{}' that stands for nothing", offset,
                   printable(rest.substr(0, 12)));
    }
    if (decoded != nullptr) append_utf8(*decoded, escape->code_point);
    rest.remove_prefix(escape->size);
  }
  return {};
}

Result<void> skip_json_value(TextCursor& cursor, int num_levels) {
  const char first = cursor.peek();
  if (first == '"') return parse_json_text(cursor, nullptr);
  if (first != '{' && first != '[') {
    if (cursor.take("null") || cursor.take("true") || cursor.take("false")) return {};
    return cursor.skip_number();
  }
  if (num_levels == kMostJsonLevels) {
    return cursor.expected(fmt::format("at most {} objects and lists in each other", kMostJsonLevels));
  }
  if (first == '[') {
    return parse_json_list(cursor, "[", "]", [&] { return skip_json_value(cursor, num_levels + 1); });
  }
  return parse_json_list(cursor, "{", "}", [&]() -> Result<void> {
    TANDEM_TRY(parse_json_text(cursor, nullptr));
    TANDEM_TRY(cursor.expect(":"));
    return skip_json_value(cursor, num_levels + 1);
  });
}

std::string json_text(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < ' ') {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace tandem::io
