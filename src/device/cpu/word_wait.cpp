#include "device/cpu/word_wait.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <limits>

namespace tandem::cpu {
namespace {

// The futex is not a private one: the other side may be another process.

/// Until the word is no longer `seen`, somebody wakes the sleepers, or the time is over.
void sleep_on(std::uint32_t* word, std::uint32_t seen, std::chrono::nanoseconds duration) {
  const timespec time{.tv_sec = 0, .tv_nsec = duration.count()};
  syscall(SYS_futex, word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

}  // namespace

void write_word(std::uint32_t* word, std::uint32_t value) {
  std::atomic_ref(*word).store(value, std::memory_order_seq_cst);
  syscall(SYS_futex, word, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

std::uint32_t acquire_word(const std::uint32_t* word) {
  return std::atomic_ref(*const_cast<std::uint32_t*>(word)).load(std::memory_order_acquire);
}

std::uint32_t await_word(const std::uint32_t* word, std::uint32_t expected, Deadline deadline) {
  constexpr std::chrono::nanoseconds kLook = std::chrono::milliseconds(1);
  for (;;) {
    const std::uint32_t seen = acquire_word(word);
    if (has_reached(seen, expected) || deadline.expired()) return seen;
    sleep_on(const_cast<std::uint32_t*>(word), seen, std::min(deadline.remaining(), kLook));
  }
}

}  // namespace tandem::cpu
