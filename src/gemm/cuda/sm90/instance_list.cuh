#pragma once

// The kernels of one file of instances/: included by these files, which are compiled for simulated GPUs too.

#include <array>

// Of CUTLASS's parts, or its twin.
#include "gemm/cuda/sm90/async_input_instance.cuh"

namespace tandem::gemm::cuda {

/// What kernels multiply, into what, and how: see plain_sums.cuh.
template <class Element_, class Out_, bool kColumnMajorB, template <class> class Sums_>
struct Multiplied {
  using Element = Element_;
  using Out = Out_;
  static constexpr bool kBIsColumnMajor = kColumnMajorB;
  template <class Mainloop>
  using Sums = Sums_<Mainloop>;
};

/// A kernel for each tile; `family` begins their names.
template <class What, class... Tiles>
std::array<AsyncInputKernel, sizeof...(Tiles)> list_of(TileList<Tiles...>, const char* family, DType dtype,
                                                       DType out) {
  const auto kernel_of = [&]<class OneTile>(OneTile) {
    using Instance = AsyncInputInstance<What, OneTile>;
    return AsyncInputKernel{{.name = name_of(family, OneTile::kTiling),
                             .dtype = dtype,
                             .out = out,
                             .sums = Instance::kSums,
                             .b_is_column_major = What::kBIsColumnMajor,
                             .tiling = OneTile::kTiling},
                            Instance::kernel(),
                            Instance::kSharedBytes,
                            &Instance::launch};
  };
  return {kernel_of(Tiles{})...};
}

}  // namespace tandem::gemm::cuda
