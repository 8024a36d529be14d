#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <tandem/symm/kernel.hpp>

/// out [m, n] = a [m, k] * b [k, n] in bf16; a and out row-major, b column-major; k and n multiples of 8. The
/// rows of a come in chunks of m / chunks, a multiple of 128; chunk i is there once signals[i] is 1.
struct AsyncInputGemm {
  const void* a = nullptr;
  const void* b = nullptr;
  void* out = nullptr;
  int m = 0;
  int n = 0;
  int k = 0;
  const std::uint32_t* signals = nullptr;
  int chunks = 1;
  int first_chunk = 0;  ///< the one that is taken first
  tandem::symm::KernelHandle waits;
};

/// Makes the kernel present on the current device: a first launch that had to do it would wait for kernels
/// that wait.
[[nodiscard]] cudaError_t load_async_input_gemm();
/// Enqueues; leaves `spare` multiprocessors of the GPU free.
[[nodiscard]] cudaError_t launch_async_input_gemm(const AsyncInputGemm& gemm, int spare, cudaStream_t stream);
