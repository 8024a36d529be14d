#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>

#include "symm/placed_memory.hpp"

namespace tandem::symm {

// The workspace of a group's ops where no host waits for another: what can fail on one rank alone comes
// before the ops' agreement, and the ranks meet behind it, in their streams.

/// A workspace of at least `min_bytes`, as symm::workspace(), if the present one is smaller. Local.
/// Errors: those of symm::empty(); kUnsupported while capturing.
[[nodiscard]] Result<std::optional<PlacedMemory>> place_workspace(Group& group, Device& device,
                                                                  std::int64_t min_bytes);

/// The group's workspace for what is enqueued on `stream` from here on; `larger` replaces it. There is one.
[[nodiscard]] Result<std::shared_ptr<Handle>> connect_workspace(Group& group, Stream& stream,
                                                                std::optional<PlacedMemory> larger);

}  // namespace tandem::symm
