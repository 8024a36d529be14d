#pragma once

#include <atomic>
#include <tandem/base/deadline.hpp>
#include <tandem/base/error.hpp>

#include "symm/service.hpp"

namespace tandem::symm::cpu {

/// One signal between this rank and `peer`.
struct Signal {
  const char* what;  ///< the call it belongs to, for errors
  int peer;
  int channel;
  Deadline deadline;
};

/// Waits until the peer has consumed the last signal, then sends one and rings the peer. `order` is release
/// or relaxed.
[[nodiscard]] Result<void> put(const Peers& peers, const Signal& signal,
                               std::memory_order order = std::memory_order_release);
/// Waits for the peer's signal, consumes it and rings the peer, whose next put may be waiting. `order` is
/// acquire or relaxed.
[[nodiscard]] Result<void> take(const Peers& peers, const Signal& signal,
                                std::memory_order order = std::memory_order_acquire);
/// Puts to all others, then takes from all others: nobody passes before all have arrived. The own slot is not
/// touched.
[[nodiscard]] Result<void> meet(const Peers& peers, const Signal& signal,
                                std::memory_order put_order = std::memory_order_release,
                                std::memory_order take_order = std::memory_order_acquire);
/// What a corrupted signal looks like: the receiver must time out, not pass.
void corrupt_signal(const Peers& peers, int dst, int channel);

}  // namespace tandem::symm::cpu
