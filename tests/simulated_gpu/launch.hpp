#pragma once

#include <cuda_runtime_api.h>

#include "block.hpp"

namespace tandem::simulated {

cudaError_t enqueue_launch(Launch launch, cudaStream_t stream);

}  // namespace tandem::simulated
