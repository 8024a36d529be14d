#pragma once

// The twin of gemm/cuda/sm90/promoted_sums.cuh: a name for what async_input_instance.cuh does beside it.

#include "gemm/cuda/sm90/async_input_kernel.hpp"

namespace tandem::gemm::cuda {

template <class>
struct PromotedSums {
  static constexpr SumsKind kKind = SumsKind::kPromoted;
};

}  // namespace tandem::gemm::cuda
