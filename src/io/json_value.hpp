#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>

namespace tandem::io {

/// Reads JSON. Errors: kParse "byte 12: no JSON, found 'x'", counted from 0, on one line of ASCII; also for a
/// number that no double holds.
[[nodiscard]] Result<nlohmann::json> parse_json(std::string_view text);

/// The same of a text that has to be an object. Errors: also kParse "byte 0: found 24, need an object".
[[nodiscard]] Result<nlohmann::json> parse_json_object(std::string_view text);

/// The text under `key`. Throws json::exception where there is nothing. Errors: kParse "key is 24, need a
/// text".
[[nodiscard]] Result<std::string> text_at(const nlohmann::json& object, const char* key);

/// What a file says, for an error text, on one line of ASCII. What has parts is not printed: it may be as
/// deep as the file is long.
[[nodiscard]] std::string shown(const nlohmann::json& value);

/// What json::exception says of a value that is missing or of another type, without its number.
[[nodiscard]] std::string reason_of(const nlohmann::json::exception& error);

}  // namespace tandem::io
