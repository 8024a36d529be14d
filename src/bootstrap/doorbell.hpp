#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tandem::bootstrap {

/// One rank's futex word and the number of its threads that sleep on it. Protocol, argument and model:
/// docs/design/waiting.md.
///
/// A waiter registers (sleepers + 1), reads the bell, looks once more, sleeps on that bell value. A ringer
/// stores its signal, then reads `sleepers` by a read-modify-write and, if anybody is there, bumps the bell
/// and wakes. Both touch `sleepers` by read-modify-writes of one object, which have one order: if the
/// waiter's comes first the ringer sees it; if the ringer's comes first the waiter's acquires it, and its
/// last look sees the signal.
struct alignas(64) Doorbell {
  std::atomic<std::uint32_t> bell{0};
  std::atomic<std::uint32_t> sleepers{0};

  /// Wakes the owner if one of its threads sleeps; after the store it may be waiting for.
  void ring() {
    if (sleepers.fetch_add(0, std::memory_order_seq_cst) != 0) ring_always();
  }
  /// For rare news (poison, leaving): wakes whoever sleeps or is about to.
  void ring_always();
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "the words are shared by processes");

/// A thread's registration at its own doorbell, made before the last look.
class Sleeper {
 public:
  explicit Sleeper(Doorbell& doorbell) : doorbell_(doorbell) {
    doorbell_.sleepers.fetch_add(1, std::memory_order_seq_cst);
    seen_ = doorbell_.bell.load(std::memory_order_acquire);
  }
  ~Sleeper() { doorbell_.sleepers.fetch_sub(1, std::memory_order_seq_cst); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  /// Returns at the next ring since the registration, after `longest`, or for no reason.
  void sleep(std::chrono::nanoseconds longest);

 private:
  Doorbell& doorbell_;
  std::uint32_t seen_;
};

/// Tells the processor that this is a spin loop.
inline void spin_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tandem::bootstrap
