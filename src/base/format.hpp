#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tandem/base/error.hpp>
#include <utility>

namespace tandem {

/// fail() with a format string: `return failf(ErrorCode::kParse, "got {}, need {}", got, need);`
template <class... Args>
[[nodiscard]] tl::unexpected<Error> failf(ErrorCode code, fmt::format_string<Args...> format,
                                          Args&&... args) {
  return fail(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tandem
