#include "io/file_lock.hpp"

#include <sys/file.h>

#include <cerrno>
#include <tandem/base/deadline.hpp>
#include <thread>

#include "base/format.hpp"
#include "io/errors.hpp"

namespace tandem::io {

Result<void> lock_file(int fd, std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kPause{5};
  const auto deadline = Deadline::after(patience);
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return system_error("cannot lock it", errno);
    if (deadline.expired())
      return failf(ErrorCode::kTimeout, "another program has had it locked for {} ms", patience.count());
    std::this_thread::sleep_for(kPause);
  }
  return {};
}

}  // namespace tandem::io
