#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <tandem/base/error.hpp>
#include <tandem/gemm/chunk_order.hpp>
#include <tandem/symm/kernel.hpp>

#include "device/stamps.hpp"
#include "gemm/cpu/tile_kernels.hpp"

namespace tandem::gemm::cpu {

/// Where the word of this rank lies in the block of each other one, and what is written there.
struct Telling {
  symm::KernelHandle ranks;
  std::int64_t word_bytes = 0;
  std::uint32_t value = 0;
};

/// A product whose left operand arrives in chunks, or whose rows others are told of, as the CPU runs it:
/// small enough to be captured by a task.
struct AsyncInputProduct {
  TileProblem whole;
  ChunkOrder order;
  const std::uint32_t* signals = nullptr;
  int num_chunks = 0;
  std::uint32_t expected = 1;
  std::chrono::nanoseconds timeout{};  ///< of each wait that no group watches
  /// Chunks [complete_first, complete_end) are there, in memory of their own.
  const void* complete = nullptr;
  int complete_first = 0;
  int complete_end = 0;
  /// The group that watches the waits.
  std::optional<symm::KernelHandle> group = {};
  std::int64_t chunks_per_rank = 1;
  /// False: the first chunk in the order that is there goes first.
  bool in_order = true;
  /// The rows of a chunk lie in its sender's block, where `whole.a` has them in the own one. Only complete
  /// ones do not. Needs `group`, and signals that ring the own doorbell.
  bool held = false;
  bool are_relayed = false;  ///< signals: see symm::AwaitedChunks
  /// Chunk i is rank i's, who is told of it; the own one comes last.
  std::optional<Telling> telling = {};
  /// Where waits are noted, if anywhere.
  ChunkWaitLog chunk_waits = {};
};

/// Packs b, unless it is large. Awaits a chunk, multiplies its rows, goes on, until all are taken. Chunks
/// behind it that are there already are multiplied with it where their rows lie behind its own, since a large
/// b is packed once a product. No order changes a bit. Errors: kTimeout, kOutOfMemory, kDriver; those of
/// Control::wait() where a group watches.
[[nodiscard]] Result<void> run(const AsyncInputProduct& product, const TileKernels& kernels);

}  // namespace tandem::gemm::cpu
