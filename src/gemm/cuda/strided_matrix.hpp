#pragma once

#include <cstdint>

namespace tandem::gemm::cuda {

/// A strided matrix of a type known elsewhere. Units: strides in elements.
struct StridedMatrix {
  void* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 0;
};

}  // namespace tandem::gemm::cuda
