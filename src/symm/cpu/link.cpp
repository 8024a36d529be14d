#include "symm/cpu/link.hpp"

#include <algorithm>
#include <thread>

#include "base/try.hpp"

namespace tandem::symm::cpu {

Result<void> wait_for_link(const Peers& peers, int parts) {
  const Deadline end =
      Deadline::after(std::chrono::nanoseconds(peers.group->config().link_delay) / std::max(parts, 1));
  constexpr std::chrono::nanoseconds kLook = std::chrono::milliseconds(10);
  while (!end.expired()) {
    TANDEM_TRY(peers.control->status());
    std::this_thread::sleep_for(std::min(end.remaining(), kLook));
  }
  return {};
}

}  // namespace tandem::symm::cpu
