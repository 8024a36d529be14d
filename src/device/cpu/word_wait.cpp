#include "device/cpu/word_wait.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <limits>
#include <system_error>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::cpu {
namespace {

// The futex is not a private one: the other side may be another process.

tl::unexpected<Error> futex_error(const char* what, const std::uint32_t* word) {
  const int number = errno;
  return fail(ErrorCode::kDriver,
              fmt::format("{} the word at {}: {}", what, static_cast<const void*>(word),
                          std::generic_category().message(number)),
              number);
}

/// Until the word is no longer `seen`, somebody wakes the sleepers, or the time is over. Errors: kDriver.
Result<void> sleep_on(std::uint32_t* word, std::uint32_t seen, std::chrono::nanoseconds duration) {
  const timespec time{.tv_sec = 0, .tv_nsec = duration.count()};
  if (syscall(SYS_futex, word, FUTEX_WAIT, seen, &time, nullptr, 0) == 0) return {};
  if (errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT) return {};
  return futex_error("cannot sleep on", word);
}

}  // namespace

Result<void> write_word(std::uint32_t* word, std::uint32_t value) {
  std::atomic_ref(*word).store(value, std::memory_order_seq_cst);
  if (syscall(SYS_futex, word, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0) >= 0)
    return {};
  return futex_error("cannot wake who sleeps on", word);
}

std::uint32_t acquire_word(const std::uint32_t* word) {
  return std::atomic_ref(*const_cast<std::uint32_t*>(word)).load(std::memory_order_acquire);
}

Result<std::uint32_t> await_word(const std::uint32_t* word, std::uint32_t expected, Deadline deadline) {
  constexpr std::chrono::nanoseconds kLook = std::chrono::milliseconds(1);
  for (;;) {
    const std::uint32_t seen = acquire_word(word);
    if (has_reached(seen, expected) || deadline.expired()) return seen;
    TANDEM_TRY(sleep_on(const_cast<std::uint32_t*>(word), seen, std::min(deadline.remaining(), kLook)));
  }
}

}  // namespace tandem::cpu
