#pragma once

#include <atomic>
#include <cstdint>

namespace tandem::symm::cpu {

// One slot of a signal pad. Memory order, for a sender S and a receiver R of one slot:
//
//   put   CAS 0 -> 1, release: what S's stream did before it happens before whatever R does after the wait
//         that reads this 1. A stream is in order, so "before in the stream" is "before on its thread".
//   wait  CAS 1 -> 0, acquire: reads the 1 of exactly one put, since only R turns 1 into 0 and only S turns 0
//         into 1.
//
// A put that finds 1 means that R has not consumed the last one; it waits for R's 0. That 0 carries no data
// from R to S, so the CAS of a put need not acquire: what R did before consuming is not promised to S (a
// barrier, with signals both ways, promises it). No fence is needed: the data is ordered by the slot alone,
// and the sleeping protocol has a full barrier of its own in Control::ring().
//
// The orders are parameters so that a test can weaken one and see the race detector report it.

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

using Slot = std::atomic<std::uint32_t>;

inline Slot& slot_at(std::uint32_t* pad, int world_size, int channel, int source) {
  return *reinterpret_cast<Slot*>(pad + static_cast<std::int64_t>(world_size) * channel + source);
}

template <std::memory_order kOrder = std::memory_order_release>
[[nodiscard]] bool try_put(Slot& slot) {
  std::uint32_t expected = 0;
  return slot.compare_exchange_strong(expected, 1, kOrder, std::memory_order_relaxed);
}

template <std::memory_order kOrder = std::memory_order_acquire>
[[nodiscard]] bool try_take(Slot& slot) {
  std::uint32_t expected = 1;
  return slot.compare_exchange_strong(expected, 0, kOrder, std::memory_order_relaxed);
}

}  // namespace tandem::symm::cpu
