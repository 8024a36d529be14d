#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>

namespace tandem::coll {

enum class ReduceOp : std::uint8_t { kSum, kAvg };
[[nodiscard]] std::string_view to_string(ReduceOp op);

/// Every rank's rows, one after the other.
/// Shapes:  input [s_r, ...], output [total, ...]; s_r by the shard rule over `total` rows; both contiguous.
/// Types:   any; equal.
/// Memory:  the input may be its own place in the output; no other overlap.
/// Order:   enqueued on `stream`, returns at once; on a GPU the host waits for the others in the first call
///          of a problem.
/// Errors:  kInvalidArgument now; kMismatch, kTimeout, kPeerLost at the next Stream::synchronize().
struct AllGatherArgs {
  TensorView input;
  TensorView output;
};
[[nodiscard]] Result<void> all_gather(const AllGatherArgs& args, Group& group, Stream& stream);

/// Sum or mean over the ranks; rank r keeps rows shard_of(total, W, r).
/// Shapes:  input [total, ...], output [s_r, ...]; contiguous. The output may have any strides.
/// Types:   input and output f32, bf16 or f16 (on CPUs also f8, which saturates), equal or one of them f32;
///          bias as output; f32 sums in rank order 0..W-1, one rounding.
/// Memory:  the output may be the own rows of the input, element for element and of its type; no other
///          overlap.
/// Errors:  as all_gather.
struct ReduceScatterArgs {
  TensorView input;
  TensorView output;
  ReduceOp op = ReduceOp::kSum;
  std::optional<TensorView> bias;  ///< [last], added once, before the rounding
};
[[nodiscard]] Result<void> reduce_scatter(const ReduceScatterArgs& args, Group& group, Stream& stream);

/// All-gather that raises a word as each piece arrives, for a consumer that already runs.
/// Shapes:  input [rows, ...], symmetric (`input_handle`); output [W*rows, ...]; progress u32
///          [W*splits_per_rank], zero at the start. Word q*splits + i is set to 1 after piece i of rank q is
///          in place.
/// Memory:  the input may be its own place in the output; no other overlap, progress included.
/// Order:   sources r+1, r+2, ..., own rank last; a barrier at the end.
/// Errors:  kInvalidArgument for a non-contiguous input, rows*... % splits_per_rank != 0, a wrong size of
///          progress or output, an input that is not symmetric, overlap.
struct AllGatherWithProgressArgs {
  TensorView output;
  TensorView input;
  TensorView progress;
  int splits_per_rank = 1;
  std::shared_ptr<symm::Handle> input_handle;
};
[[nodiscard]] Result<void> all_gather_with_progress(const AllGatherWithProgressArgs& args, Group& group,
                                                    Stream& stream);

/// out = the sum (or mean) over dim 0 of `stack`, plus bias: the last step of a scatter. Local.
/// Shapes:  stack [W, rows..., n] contiguous; out [rows..., n], any strides; bias [n].
/// Types:   as reduce_scatter; f32 sums in the order 0..W-1, one rounding.
/// Memory:  out overlaps neither stack nor bias.
/// Errors:  kInvalidArgument now.
struct ReduceStackArgs {
  TensorView stack;
  TensorView out;
  ReduceOp op = ReduceOp::kSum;
  std::optional<TensorView> bias;
};
[[nodiscard]] Result<void> reduce_stack(const ReduceStackArgs& args, Stream& stream);

}  // namespace tandem::coll
