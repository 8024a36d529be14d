#pragma once

#include <chrono>
#include <cstdint>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>

#include "bootstrap/control.hpp"

namespace tandem::symm {

// Agreement: before a collective op touches an output, every rank compares what all ranks are about to run.
// One numbered slot a rank in the group's control memory; the number also proves the order of ops.

/// Takes the group's next sequence number and enqueues the comparison. If the ranks differ every rank gets
/// kMismatch: on a CPU work behind it on `stream` is skipped; on a GPU, where neither host nor stream waits
/// for the others, the next synchronize() says so, waits for signals end, and outputs are undefined. Where
/// ranks share a GPU, and while a GPU's stream captures, the hosts agree at once; replays do not agree.
/// `patience`: how long the stream, or the host, waits for the other ranks. Returns the number.
[[nodiscard]] Result<std::uint64_t> agree(Stream& stream, Group& group,
                                          const bootstrap::Fingerprint& fingerprint,
                                          std::chrono::milliseconds patience);

/// The same, blocking the host: before what ranks can only do together.
[[nodiscard]] Result<std::uint64_t> agree_now(Group& group, const bootstrap::Fingerprint& fingerprint);

/// Behind the last step of call `sequence`, on which the ranks have agreed. Where ranks share the GPU of
/// `stream`, the host waits until every rank has enqueued its steps: see Loopback in docs/design/cuda.md.
/// Errors: those of bootstrap::Control::wait_enqueued().
[[nodiscard]] Result<void> end_call(Stream& stream, Group& group, std::uint64_t sequence);

/// This rank's arguments were refused: tells the others at once, which wait for it otherwise. Returns `why`.
[[nodiscard]] Error refuse(Group& group, Error why);

}  // namespace tandem::symm
