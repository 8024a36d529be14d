#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>

namespace tandem::coll {

/// How values of different ranks become one: their sum or their mean.
enum class ReduceOp : std::uint8_t { kSum, kAvg };
/// "sum" or "avg".
[[nodiscard]] std::string_view to_string(ReduceOp op);

/// Collects every rank's rows in rank order.
/// Shapes:  input [s_r, ...], output [total, ...], both contiguous. s_r follows the shard rule over `total`.
/// Types:   any; equal.
/// Memory:  the input may be its own place in the output; no other overlap.
/// Order:   The call enqueues on `stream` and returns. On a GPU, the host waits for the other ranks in the
///          first call of a problem; in every call where ranks share the GPU.
/// Errors:  kInvalidArgument now; kMismatch, kTimeout, kPeerLost at the next Stream::synchronize().
struct AllGatherArgs {
  TensorView input;
  TensorView output;
};
[[nodiscard]] Result<void> all_gather(const AllGatherArgs& args, Group& group, Stream& stream);

/// Sums the ranks' inputs, or takes their mean. Rank r keeps the rows shard_of(total, W, r).
/// Shapes:  input [total, ...] contiguous; output [s_r, ...] with any strides.
/// Types:   f32, bf16, f16 or f8, which saturates. Input and output have the same type, or one
///          of them is f32. The bias has the output's type. Sums are f32, in rank order 0..W-1, and rounded
///          once.
/// Memory:  the output may be the own rows of the input, element for element and with its type; no other
///          overlap.
/// Errors:  as all_gather().
struct ReduceScatterArgs {
  TensorView input;
  TensorView output;
  ReduceOp op = ReduceOp::kSum;
  std::optional<TensorView> bias;  ///< [last], added once, before the rounding
};
[[nodiscard]] Result<void> reduce_scatter(const ReduceScatterArgs& args, Group& group, Stream& stream);

/// As all_gather(), along any dimension, for a product that runs beside it on another stream: copy engines
/// move the data, and a barrier before and behind them takes one warp.
/// Shapes:  output any; input the same but for gather_dim, where it has s_r by the shard rule. Any strides
///          that copy engines take.
/// Types:   any; equal.
/// Memory:  the input may be its own place in the output; no other overlap. Without `input_handle` the input
///          is first copied to the group's workspace. With it, peers read it in place, and no workspace is
///          used.
/// Order:   as all_gather(). On CPUs the ranks' cores copy.
/// Errors:  as all_gather(). kInvalidArgument too for a dimension that does not exist, and for an input that
///          is not contiguous or not symmetric but has a handle; kUnsupported for strides that would take
///          more than 64 copies a shard.
struct LowContentionAllGatherArgs {
  TensorView input;
  TensorView output;
  int gather_dim = 0;
  /// Of the memory that holds the input, at the same place on every rank. Null: the input is not symmetric.
  std::shared_ptr<symm::Handle> input_handle = {};
};
[[nodiscard]] Result<void> low_contention_all_gather(const LowContentionAllGatherArgs& args, Group& group,
                                                     Stream& stream);

/// As reduce_scatter(), along any dimension, for a product that runs beside it on another stream: copy
/// engines push the chunks to their owners, and one small kernel adds them. The bits are those
/// of reduce_scatter().
/// Shapes:  input any; output the same but for scatter_dim, where it has s_r by the shard rule. Input of any
///          strides that copy engines take, output of any.
/// Types:   as reduce_scatter().
/// Memory:  the input is read where it lies, symmetric or not. The output may be the own chunk of the input,
///          element for element and with its type; no other overlap.
/// Order:   as all_gather(). On CPUs the ranks' cores copy and add.
/// Errors:  as low_contention_all_gather().
struct LowContentionReduceScatterArgs {
  TensorView input;
  TensorView output;
  ReduceOp op = ReduceOp::kSum;
  int scatter_dim = 0;
};
[[nodiscard]] Result<void> low_contention_reduce_scatter(const LowContentionReduceScatterArgs& args,
                                                         Group& group, Stream& stream);

/// What the barriers of low-contention ops are on this stream: "stream operations", which take no
/// multiprocessor; "kernels" of one warp, where ranks share a GPU or a driver refuses such operations; or
/// "cores". Known once the group has run such an op.
/// Errors:  kUnsupported for a device without symmetric memory.
[[nodiscard]] Result<std::string_view> low_contention_barriers(Group& group, const Stream& stream);

/// Sums the ranks' inputs, or takes their mean; every rank gets all of it, with the same bits.
/// Shapes:  input and output [total, ...], both contiguous.
/// Types:   as reduce_scatter().
/// Memory:  the output may be the input, element for element and with its type; no other overlap.
/// Errors:  as all_gather().
struct AllReduceArgs {
  TensorView input;
  TensorView output;
  ReduceOp op = ReduceOp::kSum;
  std::optional<TensorView> bias;  ///< [last], added once, before the rounding
};
[[nodiscard]] Result<void> all_reduce(const AllReduceArgs& args, Group& group, Stream& stream);

/// Collects every rank's rows and writes a progress word after each chunk, for a consumer that already runs.
/// Shapes:  input [rows, ...], symmetric (`input_handle`); output [W*rows, ...]; progress u32
///          [W*splits_per_rank], zero at the start. Word q*splits_per_rank + i becomes 1 when chunk i of rank
///          q is complete.
/// Memory:  the input may be its own place in the output; no other overlap, progress included.
/// Order:   Chunks come from the ranks r+1, r+2, ..., and last from the own rank. A barrier ends the op.
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

/// Sums dim 0 of `stack`, or takes the mean, and adds the bias: the last step of a reduce-scatter. No other
/// rank takes part.
/// Shapes:  stack [W, rows..., n] contiguous; out [rows..., n] with any strides; bias [n].
/// Types:   as reduce_scatter().
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
