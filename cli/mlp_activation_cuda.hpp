#pragma once

#include <cstdint>

struct CUstream_st;

namespace tandem::cli::cuda {

/// An Activation on a GPU.
struct SiluMul {
  const void* gate;
  const void* up;
  void* activated;
  bool is_f8;  ///< activated is f8e4m3, else bf16
  float scale;
  std::int64_t count;
};

// Both return a cudaError_t.
[[nodiscard]] int launch_silu_mul(const SiluMul& what, CUstream_st* stream);
[[nodiscard]] int load_silu_mul();

}  // namespace tandem::cli::cuda
