#include "symm/cpu/signals.hpp"

#include "base/try.hpp"
#include "symm/cpu/slot.hpp"

namespace tandem::symm::cpu {

Result<void> put(const Peers& peers, const Signal& signal, std::memory_order order) {
  Slot& slot = slot_at(peers.pads[static_cast<std::size_t>(signal.peer)], peers.world_size, signal.channel,
                       peers.rank);
  const bool release = order != std::memory_order_relaxed;
  TANDEM_TRY(peers.control->wait({signal.what, signal.peer, signal.channel, 0, &slot}, signal.deadline, [&] {
    return release ? try_put(slot) : try_put<std::memory_order_relaxed>(slot);
  }));
  peers.control->ring(signal.peer);
  return {};
}

Result<void> take(const Peers& peers, const Signal& signal, std::memory_order order) {
  Slot& slot = slot_at(peers.pads[static_cast<std::size_t>(peers.rank)], peers.world_size, signal.channel,
                       signal.peer);
  const bool acquire = order != std::memory_order_relaxed;
  TANDEM_TRY(peers.control->wait({signal.what, signal.peer, signal.channel, 1, &slot}, signal.deadline, [&] {
    return acquire ? try_take(slot) : try_take<std::memory_order_relaxed>(slot);
  }));
  peers.control->ring(signal.peer);
  return {};
}

Result<void> meet(const Peers& peers, const Signal& signal, std::memory_order put_order,
                  std::memory_order take_order) {
  // Each rank begins with its next neighbour, so that W ranks do not all write to rank 0 first.
  Signal one = signal;
  for (int step = 1; step < peers.world_size; ++step) {
    one.peer = (peers.rank + step) % peers.world_size;
    TANDEM_TRY(put(peers, one, put_order));
  }
  for (int step = 1; step < peers.world_size; ++step) {
    one.peer = (peers.rank + step) % peers.world_size;
    TANDEM_TRY(take(peers, one, take_order));
  }
  return {};
}

void corrupt_signal(const Peers& peers, int dst, int channel) {
  slot_at(peers.pads[static_cast<std::size_t>(dst)], peers.world_size, channel, peers.rank).store(~0U);
}

}  // namespace tandem::symm::cpu
