#pragma once

// The twin of gemm/cuda/sm90/scaled_sums.cuh: a name for what async_input_instance.cuh does beside it.

#include "gemm/cuda/sm90/async_input_kernel.hpp"

namespace tandem::gemm::cuda {

template <class>
struct ScaledSums {
  static constexpr SumsKind kKind = SumsKind::kScaled;
};

}  // namespace tandem::gemm::cuda
