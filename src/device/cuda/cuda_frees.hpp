#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <optional>

#include "device/deferred_frees.hpp"

namespace tandem::cuda {

class CudaStream;

/// Behind what a stream had queued.
struct StreamMark {
  std::shared_ptr<CUevent_st> event;
};
[[nodiscard]] bool is_done(const StreamMark& mark);
/// Without taking a turn: the stream has work queued, so that it keeps the hardware queue that it has. While
/// it records, what it had queued when the recording began.
[[nodiscard]] std::optional<StreamMark> queued_on(const CudaStream* stream);
/// A mark on a stream that does not record; none if it has nothing to do, or has failed.
[[nodiscard]] std::optional<StreamMark> make_mark(cudaStream_t stream);

/// Of a GPU: a service of its own, for the leaves that have memory of their own.
using CudaFrees = DeferredFrees<const CudaStream*>;

}  // namespace tandem::cuda
