#pragma once

#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>

struct CUstream_st;

namespace tandem::cuda {

/// The `cudaStream_t` of a GPU's stream. Use it to launch your own kernels in the stream's order.
/// Errors:  kInvalidArgument for a stream of another backend.
[[nodiscard]] Result<CUstream_st*> native_stream(Stream& stream);

/// Makes a tandem stream of the caller's, which must outlive it. Its end leaves the caller's stream as it is
/// and does not wait for it. So call synchronize() before memory goes that queued work uses. The null stream
/// is refused: it waits for every other stream, also for those that wait for it.
/// Errors:  kInvalidArgument for the null stream or a device of another backend.
[[nodiscard]] Result<std::unique_ptr<Stream>> adopt_stream(Device& device, CUstream_st* native);

}  // namespace tandem::cuda
