#pragma once

// How a tile's sums go to memory.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cute/tensor.hpp>

#include <cstdint>

#include "gemm/cuda/sm90/sum_place.cuh"

namespace tandem::gemm::cuda {

__device__ inline std::uint32_t rounded_pair(float first, float second, cutlass::bfloat16_t) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
__device__ inline std::uint32_t rounded_pair(float first, float second, cutlass::half_t) {
  const __half2 pair = __floats2half2_rn(first, second);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

/// Each thread rounds its own sums and stores them, 16 bytes at a time: the four threads of a quad first
/// exchange what they have of 32 columns of a row. Nobody waits for anybody, so that one warp group stores
/// while the other multiplies, and no shared memory is needed.
/// Shapes:  out has n columns, a multiple of 8, and begins at a multiple of 16 bytes.
template <class Out>
struct DirectStores {
  static_assert(sizeof(Out) == 2);
  struct Params {
    Out* out;
    int n;
    int batch_rows;  ///< see ProductGrid
  };

  /// `row`: see first_row_of(); `first_column`: of the tile.
  template <class Work, class Sums>
  CUTLASS_DEVICE static void store(const Params& params, const Work& work, int row, int first_column,
                                   const Sums& sums) {
    using namespace cute;
    constexpr int kGroups = num_sum_groups(Sums{});
    const int lane = static_cast<int>(threadIdx.x) % 4;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int at = work.M_idx * 128 + row + 8 * i;
      const bool is_inside = at < params.batch_rows;
      Out* const to =
          params.out + (std::int64_t{work.L_idx} * params.batch_rows + at) * params.n + first_column;
      const auto pair = [&](int group) {
        return rounded_pair(sum_at(sums, group, i, 0), sum_at(sums, group, i, 1), Out{});
      };
      CUTLASS_PRAGMA_UNROLL
      for (int group = 0; group + 4 <= kGroups; group += 4) {
        std::uint32_t pairs[4];
        CUTLASS_PRAGMA_UNROLL
        for (int g = 0; g < 4; ++g) pairs[g] = pair(group + g);
        transpose_in_quad(lane, pairs);
        const int column = (group + lane) * 8;
        if (is_inside && first_column + column < params.n)
          *reinterpret_cast<uint4*>(to + column) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
      }
      CUTLASS_PRAGMA_UNROLL
      for (int group = kGroups / 4 * 4; group < kGroups; ++group) {
        if (is_inside && first_column + group * 8 < params.n)
          *reinterpret_cast<std::uint32_t*>(to + group * 8 + lane * 2) = pair(group);
      }
    }
  }
};

}  // namespace tandem::gemm::cuda
