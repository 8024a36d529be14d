#pragma once

#include <string>
#include <utility>

namespace tandem {

/// Whether something can run here, and if not, why. "No" is an answer and not an error.
struct Support {
  bool ok = true;
  std::string why_not;

  [[nodiscard]] static Support yes() { return {}; }
  [[nodiscard]] static Support no(std::string why) { return {false, std::move(why)}; }
  explicit operator bool() const { return ok; }
};

}  // namespace tandem
