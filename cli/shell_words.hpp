#pragma once

#include <string>
#include <vector>

namespace tandem::cli {

/// The words as one line that a shell splits into the same words.
[[nodiscard]] inline std::string shell_words(const std::vector<std::string>& words) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,=+:@%";
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) {
      if (c == '\'') line += "'\\'";
      line += c;
    }
    line += '\'';
  }
  return line;
}

}  // namespace tandem::cli
