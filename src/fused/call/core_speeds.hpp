#pragma once

#include <optional>
#include <string_view>
#include <tandem/base/core_rates.hpp>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <tandem/fused/report.hpp>

#include "fused/call/choose.hpp"

namespace tandem::fused {

/// What an op does on a core.
struct CoreWork {
  CoreRate product = CoreRate::kMmF32;
  CoreRate packing = CoreRate::kPackF32;
  std::optional<CoreRate> sum = {};
};

/// The speeds that all ranks of the group predict with; nullopt on GPUs, and where they are not known and
/// `may_measure` is false. If it is true, as for an `auto` without tuned times, what nobody gave or kept is
/// measured, in some milliseconds.
/// Errors: those of the device's memory, streams and products.
[[nodiscard]] Result<std::optional<CoreSpeeds>> core_speeds(const CoreWork& work, bool may_measure,
                                                            Group& group, Device& device);

}  // namespace tandem::fused
