#pragma once

#include <cuda_runtime_api.h>

namespace tandem::simulated {

/// Keeps a refusal for cudaGetLastError(), and returns it.
cudaError_t status(cudaError_t code);

}  // namespace tandem::simulated
