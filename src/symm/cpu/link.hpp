#pragma once

#include <tandem/base/error.hpp>

#include "symm/peers_handle.hpp"

namespace tandem::symm::cpu {

/// The simulated link: takes its time for one of so many equal parts of what a rank has for another one,
/// without a core, but not longer than the group is sound.
[[nodiscard]] Result<void> wait_for_link(const Peers& peers, int parts = 1);

}  // namespace tandem::symm::cpu
