#pragma once

#include <cstdint>
#include <optional>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/gemm/async_input_mm.hpp>

namespace tandem::gemm {

/// How the left operand of a product comes: in chunks, each behind its signal. See async_input_mm.hpp.
struct Arrival {
  TensorView signals;          ///< u32 [chunks]
  std::int64_t pivot = 0;      ///< the chunk that is taken first
  std::uint32_t expected = 1;  ///< a signal s is there once (int32) (s - expected) >= 0
  std::int64_t chunks_together = 1;
  bool in_order = true;
  std::optional<CompleteChunks> complete = {};
  std::optional<ChunkSenders> senders = {};
  std::optional<PatchExchange> patches = {};  ///< needs `complete`, `senders` and GPUs
};

/// out = ((out, if accumulated, + sum_k a * b) * a_scale * b_scale + bias) * result_scale + addend, rounded
/// once: one product of any kind. A pointer that is null leaves its part out. The views are read during the
/// call only.
/// Shapes:  a [m, k], b [k, n], out [m, n], bias [n]; with scales, an addend or f8 those of ScaledMmArgs.
/// Types:   without scales, addend and f8 those of MmArgs, else those of ScaledMmArgs.
struct ProductArgs {
  const TensorView* a = nullptr;
  const TensorView* b = nullptr;
  const TensorView* out = nullptr;
  const TensorView* bias = nullptr;
  const TensorView* a_scale = nullptr;
  const TensorView* b_scale = nullptr;
  const TensorView* result_scale = nullptr;
  const TensorView* addend = nullptr;
  bool accumulate = false;
  bool fast_accum = false;           ///< allows less exact sums
  int heuristic = 0;                 ///< see MmArgs
  const Arrival* arrival = nullptr;  ///< null: a is there
};

/// Checks the operands, chooses the implementation and enqueues.
/// Order and errors: those of mm(), scaled_matmul() or async_input_mm().
[[nodiscard]] Result<void> run(const ProductArgs& args, Stream& stream);

/// Makes now what the first run() of such a product would make. Of the operands only types, sizes, strides and
/// the alignment of the addresses count, as in gemm::prepare(); pointers to memory may be null.
[[nodiscard]] Result<void> prepare(const ProductArgs& like, Stream& stream);

}  // namespace tandem::gemm
