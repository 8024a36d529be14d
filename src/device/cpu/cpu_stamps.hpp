#pragma once

#include <memory>

#include "device/stamps.hpp"

namespace tandem::cpu {

/// Stamps of CPU streams: their threads read CLOCK_MONOTONIC, which all processes of the host share.
[[nodiscard]] std::shared_ptr<StampService> make_stamp_service();

/// Notes a wait of a task that began at `begin_ns` and ends now.
void note_wait(const ChunkWaitLog& log, int chunk, std::int64_t begin_ns);

}  // namespace tandem::cpu
