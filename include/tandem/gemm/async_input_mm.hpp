#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/base/support.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>

namespace tandem::gemm {

/// Chunks of a left operand that are there from the start and lie elsewhere: the own shard of a gather.
struct CompleteChunks {
  TensorView rows;         ///< [rows of these chunks, k], contiguous
  std::int64_t first = 0;  ///< chunks [first, first + count)
  std::int64_t count = 0;  ///< at least 1
};

/// Who sends the other chunks: chunk i comes from rank i / chunks_per_rank of the handle's group. Its waits
/// then end as the group's do (poison, a lost or departed peer, the group's deadline) and are reported by it.
struct ChunkSenders {
  const symm::Handle* handle = nullptr;  ///< in whose block a and the signals lie; outlives the product
  std::int64_t chunks_per_rank = 1;
};

/// out = a * b, while the rows of a still arrive.
/// Shapes:  a [m, k], b [k, n], out [m, n], a_chunk_signals [C]: chunk i of a is shard i of its m rows by the
///          shard rule (base/shard.hpp) over C, so late chunks may be short or empty.
/// Types:   a and b bf16, f16 or, on CPUs, f32, equal; out the same or, on CPUs, f32; signals u32. a and out
///          contiguous, b row-major or column-major. f32 sums, one rounding.
struct AsyncInputMmArgs {
  TensorView a;  ///< rows of a chunk may hold anything until its signal is there
  TensorView b;  ///< complete
  TensorView out;
  TensorView a_chunk_signals;      ///< at a multiple of 4 bytes, as all words are
  std::int64_t a_chunk_pivot = 0;  ///< the chunk that is taken first
  std::uint32_t expected = 1;      ///< a signal s is there once (int32) (s - expected) >= 0
  /// So many consecutive chunks, or all if there are fewer, counted from chunk 0, may be taken in any order
  /// among each other; the pivot is the first of its own. Their rows are multiplied together, which costs
  /// less memory traffic than one after the other.
  std::int64_t chunks_together = 1;
  /// False: a few rows of a chunk may be multiplied ahead of their turn, where that makes larger pieces.
  bool in_order = true;
  /// No signal is awaited for these, and a's own memory of them is not read.
  std::optional<CompleteChunks> complete = {};
  std::optional<ChunkSenders> senders = {};
};

/// Of the addresses that a GPU's products take.
inline constexpr std::int64_t kAsyncInputAlignment = 16;
[[nodiscard]] inline bool is_aligned_async_input(const TensorView& operand) {
  return reinterpret_cast<std::uintptr_t>(operand.data) % kAsyncInputAlignment == 0;
}

/// What such a product asks of an implementation.
struct AsyncInputProblem {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t chunks = 1;
  std::int64_t chunks_together = 1;
  bool in_order = true;
  DType in = DType::kBF16;
  DType out = DType::kBF16;
  bool b_is_column_major = false;
  bool is_aligned = true;  ///< a, b, out and complete.rows begin at multiples of kAsyncInputAlignment bytes
  friend bool operator==(const AsyncInputProblem&, const AsyncInputProblem&) = default;
};

/// "async_input_mm 512x1024x2048 in 8 chunks bf16 -> bf16".
[[nodiscard]] std::string to_string(const AsyncInputProblem& problem);

/// The problem of these arguments. Errors: kInvalidArgument with the values when they do not fit together.
[[nodiscard]] Result<AsyncInputProblem> problem_of(const AsyncInputMmArgs& args);

/// Whether this device has an implementation, and if not, each one's reason. CPUs take everything; GPUs
/// (Hopper) bf16 and f16, n and k that are multiples of 8, and aligned operands.
[[nodiscard]] Support can_run(const AsyncInputProblem& problem, const Device& device);

/// Enqueues; never blocks the host, allocates nothing on the repeat path.
/// Shapes:  complete.rows [rows of its chunks, k], contiguous, of a's type.
/// Memory:  out overlaps none of the others.
/// Order:   chunks are taken in the order pivot, pivot + 1, ..., C - 1, 0, ..., pivot - 1: each one's signal
///          is awaited, then the rows of out that need it are computed. No chunk is read before its signal,
///          an empty one is not awaited, out is never read. A signal says that what its writer's stream did
///          before is visible: write it by Stream::stream_write_value32. Signals are not reset. `a` and the
///          signals must not be written by work that comes behind this product on the same stream.
/// Errors:  kInvalidArgument with the values, kUnsupported as can_run() has it, now. At the next
///          Stream::synchronize(), kTimeout with chunk, expected and seen value, when a signal has not come
///          within Config::op_timeout of the start of its wait; out is incomplete then. With `senders` the
///          group's error instead, kTimeout or kPeerLost, which names rank, peer, chunk, expected and seen
///          value on every rank; the group's own if it has one already.
/// Source:  docs/design/gemm.md
[[nodiscard]] Result<void> async_input_mm(const AsyncInputMmArgs& args, Stream& stream);

}  // namespace tandem::gemm
