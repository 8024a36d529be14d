#pragma once

#include <cuda_runtime_api.h>

#include <tandem/base/config.hpp>
#include <tandem/base/deadline.hpp>

#include "device/cuda/watch_list.hpp"

namespace tandem::cuda {

// Block the host until the work of a stream, or the work before an event's mark, is done, without the
// driver's own waits: those know neither deadlines nor watches. Every millisecond they ask the watches, which
// is how a kernel that waits for a rank that died is told to stop.
// They return cudaSuccess; cudaErrorNotReady once the deadline has passed; or what the driver said.
[[nodiscard]] cudaError_t wait_until_done(cudaStream_t stream, const WatchList& watches, Deadline deadline,
                                          const Config& config);
[[nodiscard]] cudaError_t wait_until_done(cudaEvent_t event, const WatchList& watches, Deadline deadline,
                                          const Config& config);

}  // namespace tandem::cuda
