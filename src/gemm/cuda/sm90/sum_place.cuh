#pragma once

// Where the sums of a tile lie in the registers of the threads that multiply.

#include <cute/tensor.hpp>

#include <cstdint>

#include "gemm/cuda/sm90/sum_rows.cuh"

namespace tandem::gemm::cuda {

/// Groups of eight columns that a thread has sums in, of the accumulators of one instruction of 64 rows:
/// pairs of columns, two rows, groups.
template <class Sums>
CUTLASS_HOST_DEVICE constexpr int num_sum_groups(const Sums& sums) {
  using namespace cute;
  static_assert(decltype(size<0, 0>(sums))::value == 2 && decltype(size<0, 1>(sums))::value == 2);
  static_assert(decltype(size<1>(sums))::value == 1 && decltype(size<2>(sums))::value == 1);
  return decltype(size<0, 2>(sums))::value;
}

/// One of them; row and pair are 0 or 1.
template <class Sums>
CUTLASS_DEVICE auto& sum_at(Sums& sums, int group, int row, int pair) {
  return sums(cute::make_coord(pair, row, group), 0, 0);
}

template <int kBit>
CUTLASS_DEVICE void exchange_in_quad(int lane, std::uint32_t (&values)[4]) {
  const bool is_upper = (lane & kBit) != 0;
  CUTLASS_PRAGMA_UNROLL
  for (int lower = 0; lower < 4; ++lower) {
    if ((lower & kBit) != 0) continue;
    const std::uint32_t sent = is_upper ? values[lower] : values[lower + kBit];
    const std::uint32_t got = __shfl_xor_sync(0xffffffffU, sent, kBit);
    (is_upper ? values[lower] : values[lower + kBit]) = got;
  }
}
/// Transposes 4 values of the 4 lanes of a quad: value g of lane l becomes value l of lane g. So pairs of
/// columns of four groups become the four pairs of one group, 16 bytes of a row, and back.
CUTLASS_DEVICE void transpose_in_quad(int lane, std::uint32_t (&values)[4]) {
  exchange_in_quad<1>(lane, values);
  exchange_in_quad<2>(lane, values);
}

}  // namespace tandem::gemm::cuda
