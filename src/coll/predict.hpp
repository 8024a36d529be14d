#pragma once

#include <cstdint>
#include <optional>
#include <tandem/device/device.hpp>

#include "cost/transfers.hpp"

namespace tandem::coll {

using cost::Collective;

/// What a collective takes between two products, in microseconds, by a model; nullopt where there is none: on
/// CPUs. `part_bytes`: of the largest shard, or of the largest rank's part of the input. It follows from its
/// arguments and the kind of device alone, so that all ranks find it alike.
[[nodiscard]] std::optional<double> predicted_us(Collective collective, std::int64_t part_bytes, int world,
                                                 const Device& device);

}  // namespace tandem::coll
