#include "symm/cookie.hpp"

#include <span>

#include "base/random_bytes.hpp"
#include "base/try.hpp"

namespace tandem::symm {

Result<std::uint64_t> random_cookie() {
  std::uint64_t cookie = 0;
  TANDEM_TRY(random_bytes("symmetric memory", std::as_writable_bytes(std::span(&cookie, 1))));
  return cookie;
}

}  // namespace tandem::symm
