#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <tandem/symm/kernel.hpp>

/// Makes the kernel present on the current device. A first launch that had to do it would wait for kernels
/// that wait for this very launch.
[[nodiscard]] cudaError_t load_all_reduce();

/// out = sum of all ranks' `count` floats, added in rank order: the same bits on every rank. Block b uses
/// channel first_channel + b.
[[nodiscard]] cudaError_t launch_all_reduce(const tandem::symm::KernelHandle& handle, int first_channel,
                                            float* out, std::int64_t count, cudaStream_t stream);
