#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>
#include <tandem/base/error.hpp>
#include <utility>

namespace tandem::io {

/// "cannot open it: No such file or directory", with the number as native code.
[[nodiscard]] inline tl::unexpected<Error> system_error(std::string_view what, int number) {
  return fail(ErrorCode::kDriver, fmt::format("{}: {}", what, std::generic_category().message(number)),
              number);
}

/// Runs `body`, which returns a Result, and puts the call and the path in front of its Error's text. The edge
/// of the module: memory that cannot be had becomes an Error here.
template <class Body>
[[nodiscard]] auto at_edge(std::string_view call, const std::filesystem::path& path, Body&& body)
    -> decltype(body()) {
  try {
    return std::forward<Body>(body)().map_error([&](const Error& error) {
      return Error(error.code(), fmt::format("{} '{}': {}", call, path.native(), error.text()),
                   error.native_code());
    });
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, fmt::format("{} '{}': out of memory", call, path.native()));
  }
}

}  // namespace tandem::io
