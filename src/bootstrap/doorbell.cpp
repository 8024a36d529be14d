#include "bootstrap/doorbell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace tandem::bootstrap {
namespace {

// Without FUTEX_PRIVATE_FLAG: the word is shared by processes, which std::atomic::wait does not support.
long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

}  // namespace

void Doorbell::ring_always() {
  bell.fetch_add(1, std::memory_order_seq_cst);
  futex(bell, FUTEX_WAKE, INT_MAX, nullptr);
}

void Sleeper::sleep(std::chrono::nanoseconds longest) {
  // FUTEX_WAIT's timeout is relative and on the monotonic clock. EINTR, EAGAIN (the bell has moved) and
  // ETIMEDOUT mean the same here: look again.
  constexpr std::chrono::nanoseconds kLongest = std::chrono::hours(1);
  const auto ns = std::min(longest, kLongest).count();
  const timespec timeout{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  futex(doorbell_.bell, FUTEX_WAIT, seen_, &timeout);
}

}  // namespace tandem::bootstrap
