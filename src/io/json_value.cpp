#include "io/json_value.hpp"

#include <string>

#include "base/format.hpp"
#include "io/text_cursor.hpp"

namespace tandem::io {
namespace {

using nlohmann::json;

/// Reads JSON without keeping it, up to the byte behind what is wrong.
class Locator : public nlohmann::json_sax<json> {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*size*/) override { return true; }
  bool key(string_t& /*value*/) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t /*size*/) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    read_bytes = position;
    return false;
  }

  std::size_t read_bytes = 0;  ///< one more than there are, at the end
};

}  // namespace

Result<json> parse_json(std::string_view text) {
  json value = json::parse(text, nullptr, false);
  // The parser takes a zero byte for the end of the text.
  const std::size_t zero = text.find('\0');
  if (!value.is_discarded()) {
    if (zero == std::string_view::npos) return value;
    return failf(ErrorCode::kParse, "byte {}: no JSON, found '{}'", zero, printable(text.substr(zero), 20));
  }
  Locator locator;
  (void)json::sax_parse(text, &locator);
  const std::size_t at = locator.read_bytes == 0 ? 0 : locator.read_bytes - 1;
  if (at >= text.size())
    return failf(ErrorCode::kParse, "byte {}: no JSON, found the end of the text", text.size());
  return failf(ErrorCode::kParse, "byte {}: no JSON, found '{}'", at, printable(text.substr(at), 20));
}

Result<json> parse_json_object(std::string_view text) {
  auto value = parse_json(text);
  if (!value || value->is_object()) return value;
  return failf(ErrorCode::kParse, "byte 0: found {}, need an object",
               value->is_array() ? "a list" : shown(*value));
}

Result<std::string> text_at(const json& object, const char* key) {
  const json& value = object.at(key);
  if (!value.is_string()) return failf(ErrorCode::kParse, "{} is {}, need a text", key, shown(value));
  return value.get<std::string>();
}

std::string shown(const json& value) {
  constexpr std::size_t kMostChars = 40;
  if (value.is_structured()) return "an object or a list";
  return printable(value.dump(-1, ' ', false, json::error_handler_t::replace), kMostChars);
}

std::string reason_of(const json::exception& error) {
  const std::string_view text = error.what();
  const std::size_t end = text.find("] ");
  return std::string(end == std::string_view::npos ? text : text.substr(end + 2));
}

}  // namespace tandem::io
