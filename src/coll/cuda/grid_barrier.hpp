#pragma once

#include <cstdint>
#include <tandem/base/error.hpp>
#include <tandem/symm/kernel.hpp>

#include "coll/backend.hpp"

namespace tandem::cuda {
class CudaStream;
}

namespace tandem::coll::cuda {

/// The barrier of all ranks at a kernel's end, behind the work of all its blocks; see grid_barrier.cuh.
struct GridBarrier {
  symm::KernelHandle ranks;
  int channel = 0;
  /// In the GPU's memory, one a group, whose kernels follow each other: how many blocks are done. Zero
  /// between kernels. Null: no barrier.
  std::uint32_t* num_done = nullptr;
};

/// From now on `stream` tells what the waits of the barrier give up for.
[[nodiscard]] Result<GridBarrier> grid_barrier_of(const EndBarrier& end, tandem::cuda::CudaStream& stream);

}  // namespace tandem::coll::cuda
