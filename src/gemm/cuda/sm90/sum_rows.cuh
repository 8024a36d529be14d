#pragma once

namespace tandem::gemm::cuda {

/// The first row of the tile that a thread has sums in. They lie in two rows eight apart, and in two columns
/// of every eight.
__device__ inline int first_row_of(int thread) {
  return thread / 128 * 64 + thread % 128 / 32 * 16 + thread % 32 / 4;
}

}  // namespace tandem::gemm::cuda
