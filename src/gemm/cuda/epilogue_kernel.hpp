#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "device/cuda/kernel_list.hpp"
#include "gemm/cuda/sums_epilogue.hpp"

namespace tandem::gemm::cuda {

struct Operand;

/// One pass over f32 sums [m, n] to the output. An f32 output may be the sums themselves.
struct EpiloguePass {
  std::int64_t m = 0;
  std::int64_t n = 0;
  const float* sums = nullptr;
  std::int64_t sums_stride = 0;  ///< from row to row
  SumsEpilogue epilogue;

  /// Columns that a thread takes at once: 1, or epilogue_vector_elements(). The latter needs n, the strides
  /// of rows and the addresses of sums, out and addend to be multiples of it, and column strides of 1.
  bool by_vectors = false;
};

/// As many elements of out as 16 bytes hold, at most 8.
[[nodiscard]] constexpr std::int64_t epilogue_vector_elements(DType out_dtype) {
  return size_bytes(out_dtype) == 4 ? 4 : 8;
}

/// The way from the f32 sums, out.taken, to the output of `args`.
[[nodiscard]] EpiloguePass epilogue_pass_of(const Product& product, const ProductArgs& args,
                                            const Operand& out);

/// Enqueues on `stream` of the current device.
[[nodiscard]] cudaError_t launch_epilogue(const EpiloguePass& pass, cudaStream_t stream);

[[nodiscard]] tandem::cuda::KernelList epilogue_kernels();

}  // namespace tandem::gemm::cuda
