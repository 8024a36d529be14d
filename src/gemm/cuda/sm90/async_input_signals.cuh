#pragma once

#include <tandem/symm/chunk_signals.cuh>

#include "gemm/cuda/sm90/async_input_kernel.hpp"

namespace tandem::gemm::cuda {

/// What the kernel of a launch waits for.
[[nodiscard]] inline symm::ChunkSignals signals_of(const AsyncInputLaunch& what) {
  return {.words = what.signals,
          .expected = what.expected,
          .complete_begin = what.complete_begin,
          .complete_end = what.complete_end,
          .first_number = what.first_number,
          .chunks_per_rank = what.chunks_per_rank,
          .waits = what.waits,
          .log = what.log};
}

}  // namespace tandem::gemm::cuda
