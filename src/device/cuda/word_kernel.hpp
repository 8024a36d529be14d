#pragma once

// Included by .cu files.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "device/cuda/kernel_list.hpp"

namespace tandem::cuda {

[[nodiscard]] KernelList word_kernels();
/// Stores one word, visible to the whole system, behind all earlier work of the stream.
[[nodiscard]] cudaError_t launch_store_word(std::uint32_t* word, std::uint32_t value, cudaStream_t stream);

/// words[i] = value for i in [0, count), count > 0. A kernel rather than the driver's own fill, which may go
/// by a copy engine that other ranks share.
[[nodiscard]] cudaError_t launch_fill_words(std::uint32_t* words, std::uint32_t value, std::int64_t count,
                                            cudaStream_t stream);

}  // namespace tandem::cuda
