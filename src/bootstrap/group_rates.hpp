#pragma once

#include <span>
#include <tandem/base/core_rates.hpp>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>

#include "base/function_ref.hpp"
#include "bootstrap/control_memory.hpp"
#include "cost/machine.hpp"

namespace tandem::bootstrap {

// What a group's ranks predict with must be the same on all of them. It stands in the group's control memory,
// each speed from the first rank on that says it: no rank waits for another to come to an op.

/// In memory that no other rank has yet: the speeds that rank 0's configuration gives.
void give_rates(ControlMemory& memory, const CoreRates& rates);

/// Cores that the ranks may run on together, within what rank 0's control groups grant it; the same on all
/// ranks. Ranks that are bound to cores of their own do not share them.
[[nodiscard]] int cores_of(Group& group);

/// The group's speeds as far as they are known.
[[nodiscard]] CoreRates known_rates(Group& group);

/// The group's speeds, with all of `needed`. What is missing comes from `measure`, which one rank at a time
/// calls; the others wait for it, up to a second, then measure themselves, so that a rank that hangs there
/// holds nobody up.
/// Errors: those of measure(); kInternal if it does not say what is needed.
[[nodiscard]] Result<CoreRates> agreed_rates(Group& group, std::span<const CoreRate> needed,
                                             FunctionRef<Result<CoreRates>()> measure);

/// What plans predict with on GPUs; the same on all ranks.
[[nodiscard]] const cost::GpuRates& gpu_rates_of(Group& group);
/// From now on it follows from `times`, which are the same on all ranks.
void set_gpu_times(Group& group, const cost::GpuTimes& times);

}  // namespace tandem::bootstrap
