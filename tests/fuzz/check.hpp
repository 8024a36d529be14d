#pragma once

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tandem::fuzz {

inline void check(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

/// A refusal is one line of UTF-8 that ends, and names one of the `places`.
inline void check_refusal(const std::string& text, std::initializer_list<std::string_view> places) {
  constexpr std::size_t kMostChars = 2000;
  check(text.size() <= kMostChars, "a refusal of " + std::to_string(text.size()) + " characters");
  const bool is_line = std::none_of(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; });
  check(is_line, "a refusal with control characters: " + text);
  static_cast<void>(nlohmann::json(text).dump());  // throws for what is no UTF-8
  const bool names_place = std::any_of(places.begin(), places.end(), [&](std::string_view place) {
    return text.find(place) != std::string::npos;
  });
  check(names_place, "a refusal without a place: " + text);
}

}  // namespace tandem::fuzz
