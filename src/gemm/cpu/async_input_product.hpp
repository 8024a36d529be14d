#pragma once

#include <chrono>
#include <cstdint>
#include <tandem/base/error.hpp>
#include <tandem/gemm/async_input_mm.hpp>
#include <tandem/gemm/chunk_order.hpp>

#include "gemm/cpu/tile_problem.hpp"

namespace tandem::gemm::cpu {

/// A product whose left operand arrives in chunks, as the CPU runs it: small enough to be captured by a task.
struct AsyncInputProduct {
  TileProblem whole;
  ChunkOrder order;
  const std::uint32_t* signals = nullptr;
  int num_signals = 0;
  std::uint32_t expected = 1;
  std::chrono::nanoseconds timeout{};  ///< of each wait
};

/// Takes the chunks in order: awaits one, multiplies its rows, goes on. Chunks behind it that are there
/// already are multiplied with it, since b is packed once a product. Errors: kTimeout, kOutOfMemory,
/// kDriver.
[[nodiscard]] Result<void> run(const AsyncInputProduct& product, TileKernel kernel);

}  // namespace tandem::gemm::cpu
