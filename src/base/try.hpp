#pragma once

#include <tandem/base/error.hpp>
#include <utility>

// The library's only macros: give up early on an Error without an exception.

/// Evaluates a Result and returns its Error from the calling function, if it holds one: a copy of it, if the
/// Result has a name.
#define TANDEM_TRY(expression)                                                                     \
  do {                                                                                             \
    auto&& tandem_try_result = (expression);                                                       \
    if (!tandem_try_result) {                                                                      \
      return tl::unexpected(std::forward<decltype(tandem_try_result)>(tandem_try_result).error()); \
    }                                                                                              \
  } while (false)

#define TANDEM_CONCAT_INNER(x, y) x##y
#define TANDEM_CONCAT(x, y) TANDEM_CONCAT_INNER(x, y)

/// `TANDEM_ASSIGN(auto plan, make_plan(...));` — the value, or return the Error.
#define TANDEM_ASSIGN(declaration, expression)                                         \
  auto TANDEM_CONCAT(tandem_result_, __LINE__) = (expression);                         \
  if (!TANDEM_CONCAT(tandem_result_, __LINE__)) {                                      \
    return tl::unexpected(std::move(TANDEM_CONCAT(tandem_result_, __LINE__)).error()); \
  }                                                                                    \
  declaration = *std::move(TANDEM_CONCAT(tandem_result_, __LINE__))
