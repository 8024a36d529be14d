#pragma once

#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>

struct CUstream_st;

namespace tandem::cuda {

/// The `cudaStream_t` behind a stream of a GPU, for launching kernels of your own in its order.
/// Errors: kInvalidArgument for a stream of another backend.
[[nodiscard]] Result<CUstream_st*> native_stream(Stream& stream);

/// A tandem stream over one of the caller's, which must outlive it; destroying it leaves the caller's as it
/// is, and does not wait for it: synchronize() before memory goes that its queued work uses. The null stream
/// is not taken: it waits for every other stream, and would for those that wait for it.
/// Errors: kInvalidArgument for the null stream or a device of another backend.
[[nodiscard]] Result<std::unique_ptr<Stream>> adopt_stream(Device& device, CUstream_st* native);

}  // namespace tandem::cuda
