#pragma once

#include <tandem/base/error.hpp>
#include <tandem/symm/kernel.hpp>

#include "symm/chunk_words.hpp"
#include "symm/peers_handle.hpp"

namespace tandem::symm::cpu {

/// The simulated link: takes its time for one of so many equal parts of what a rank has for another one,
/// without a core, but not longer than the group is sound.
[[nodiscard]] Result<void> wait_for_link(const Peers& peers, int parts = 1);

/// Inside a task: symm::cross_link(). Errors: as Control::wait(); kInvalidArgument if the group has ended.
[[nodiscard]] Result<void> cross_link(const KernelHandle& handle, const Crossing& crossing);

}  // namespace tandem::symm::cpu
