#pragma once

// Where the sums of a tile lie in the registers of the threads that multiply.

#include <cute/tensor.hpp>

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

}  // namespace tandem::gemm::cuda
