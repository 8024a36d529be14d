#include "symm/cookie.hpp"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "base/format.hpp"

namespace tandem::symm {

Result<std::uint64_t> random_cookie() {
  std::uint64_t cookie = 0;
  while (::getrandom(&cookie, sizeof(cookie), 0) != sizeof(cookie)) {
    if (errno == EINTR) continue;
    return fail(ErrorCode::kDriver, fmt::format("symmetric memory: getrandom: {}", std::strerror(errno)),
                errno);
  }
  return cookie;
}

}  // namespace tandem::symm
