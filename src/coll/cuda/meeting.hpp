#pragma once

#include <cstdint>
#include <tandem/base/error.hpp>
#include <tandem/symm/kernel.hpp>

#include "coll/backend.hpp"

namespace tandem::cuda {
class CudaStream;
}

namespace tandem::coll::cuda {

/// A meeting of all ranks in a kernel, behind the work of all its blocks; see meeting.cuh.
struct Meeting {
  symm::KernelHandle ranks;
  int channel = 0;
  /// In the GPU's memory, one a group, whose kernels follow each other: how many blocks are done. Zero
  /// between kernels. Null: no meeting.
  std::uint32_t* num_done = nullptr;
};

/// From now on `stream` tells what the meeting's waits give up for.
[[nodiscard]] Result<Meeting> meeting_of(const RanksMeet& meet, tandem::cuda::CudaStream& stream);

}  // namespace tandem::coll::cuda
