#pragma once

#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>

namespace tandem::fused {

/// Measures what `auto` predicts with on the group's GPUs, in less than a second, unless somebody has:
/// products, copies, barriers and collectives, all ranks at once. Rank 0 keeps the times in
/// Config::tune_folder, where groups that are created later find them (cost/gpu_times.hpp). This is a
/// collective call and blocks the host. Call it after Group::create(), before ops; `tandem` and the Python
/// package do.
///
/// Nothing is measured on CPUs, by one rank, where ranks share a GPU, where Group::gpu_times() are known,
/// where a rank lacks the memory, or where rank 0's folder cannot be written or its Config::measure_gpus is
/// false. `auto` then predicts with what is known, else with the rates of the reference machine. The log says
/// at level info what was measured, or why nothing was.
/// Memory:  about 700 MB of each GPU for as long as it lasts.
/// Errors:  those of the device's memory, streams, products and collectives; they poison the group.
[[nodiscard]] Result<void> measure_gpus(Group& group, Device& device);

}  // namespace tandem::fused
