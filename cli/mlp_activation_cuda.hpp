#pragma once

#include <cstdint>

struct CUstream_st;

namespace tandem::cli::cuda {

// Both return a cudaError_t.
[[nodiscard]] int launch_silu_mul(const void* gate, const void* up, void* activated, std::int64_t count,
                                  CUstream_st* stream);
[[nodiscard]] int load_silu_mul();

}  // namespace tandem::cli::cuda
