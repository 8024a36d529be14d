#pragma once

#include <cuda_runtime_api.h>

#include "block.hpp"

namespace tandem::simulated {

cudaError_t enqueue_launch(Launch launch, cudaStream_t stream);

/// Kernels that GPUs of this process have begun, and blocks of the largest since largest_grid() was asked
/// last.
[[nodiscard]] int num_kernels();
[[nodiscard]] unsigned largest_grid();

}  // namespace tandem::simulated
