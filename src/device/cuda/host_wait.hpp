#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <optional>
#include <tandem/base/deadline.hpp>

#include "device/cuda/watch_list.hpp"

namespace tandem::cuda {

/// Config::spin: how long a host thread spins before it naps.
using Spin = std::optional<std::chrono::microseconds>;

// Block the host until the work of a stream, or the work before an event's mark, is done, without the
// driver's own waits: those know neither deadlines nor watches. Every millisecond they ask the watches, which
// is how a kernel that waits for a rank that died is told to stop.
// They return cudaSuccess; cudaErrorNotReady once the deadline has passed; or what the driver said.
[[nodiscard]] cudaError_t wait_until_done(cudaStream_t stream, const WatchList& watches, Deadline deadline,
                                          Spin spin);
[[nodiscard]] cudaError_t wait_until_done(cudaEvent_t event, const WatchList& watches, Deadline deadline,
                                          Spin spin);

}  // namespace tandem::cuda
