#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <tandem/base/error.hpp>
#include <tandem/base/support.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/base/tensor_list.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/fused/report.hpp>
#include <tandem/symm/handle.hpp>
#include <tandem/trace/enqueue_trace.hpp>

namespace tandem {

/// The arguments of fused_all_gather_matmul().
struct AllGatherMatmulArgs {
  TensorView a = {};                        ///< this rank's shard [..., k]; any strides
  TensorList b = {};                        ///< [k, n_i] each; [gather_size, n_i] if the last dim is gathered
  int gather_dim = 0;                       ///< in [0, a.dim())
  std::int64_t gather_size = 0;             ///< size of gather_dim over all ranks
  TensorList out = {};                      ///< one for each b, with output_layout(); see make_output()
  std::optional<TensorView> gathered = {};  ///< receives all of a, with gathered_layout()
  TensorList bias = {};                     ///< empty, or one [n_i] for each b
  /// The handle of `a`, if `a` is symmetric memory: peers then read the shard in place. `a` must have the
  /// layout that output_layout() gives out, and the same place in the block on every rank. `native` pushes
  /// shards and does not use it.
  std::shared_ptr<symm::Handle> a_handle = {};
  Algorithm algorithm = Algorithm::kAuto;
  /// The number of columns of one rank's products together, for `auto` to count with. It must be the same on
  /// every rank, while n_i may differ. 0 means unknown: `auto` then assumes a square b and ignores measured
  /// times.
  std::int64_t plan_n = 0;
  trace::EnqueueTrace* trace = nullptr;  ///< receives what `pipelined` enqueues
};

/// Gathers a along a dim and multiplies it with each b: out_i = all_gather(a) * b_i (+ bias_i).
/// Shapes:  Rank r holds shard_of(gather_size, W, r) of gather_dim. out_i has a's sizes, with gather_size and
///          n_i in their places.
/// Types:   f32, bf16 or f16, the same for all. Sums are f32 and rounded once. Every rank, W and algorithm
///          give the same bits, unless the last dim is gathered: then slices of k are added in rank order. On
///          GPUs this holds as far as the vendor's product gives the same bits for any number of rows; with
///          Config::batch_invariant it always holds, also between batches.
/// Memory:  Each out, and gathered, overlaps no input and no other output.
/// Order:   The call enqueues on `stream` and returns. On a GPU, the host waits for the other ranks in the
///          first call of a problem; in every call where ranks share the GPU. Outputs are ready for later
///          work on `stream`, and for the host after Stream::synchronize(). To capture this call in a graph,
///          first run it once eagerly with the same tensors on the same stream: that allocates and loads what
///          capture cannot.
/// Errors:  kInvalidArgument now, before anything is enqueued; the other ranks then get kMismatch. kMismatch
///          on every rank if dtype, k, gather_size, gather_dim, other sizes of a, plan_n or algorithm differ;
///          n_i and the number of b's may differ. kTimeout or kPeerLost at the next Stream::synchronize().
/// Source:  docs/design/schedules.md
[[nodiscard]] Result<OpReport> fused_all_gather_matmul(const AllGatherMatmulArgs& args, Group& group,
                                                       Stream& stream);

/// Says what this call would run here, and why. The call itself then uses the same decision. Nothing is
/// enqueued, and no other rank takes part.
/// Errors:  what is wrong with the arguments on this rank; kUnsupported with the reason.
[[nodiscard]] Result<OpReport> plan(const AllGatherMatmulArgs& args, Group& group, Stream& stream);
/// Whether plan() succeeds, and its error if not.
[[nodiscard]] Support can_run(const AllGatherMatmulArgs& args, Group& group, Stream& stream);

/// The layout that out[i] must have. The gathered dim is outermost in memory, as in PyTorch's op.
/// Errors:  kInvalidArgument when a, b[i], gather_dim and gather_size do not fit.
[[nodiscard]] Result<Layout> output_layout(const AllGatherMatmulArgs& args, int i);
/// The layout that gathered must have.
[[nodiscard]] Result<Layout> gathered_layout(const AllGatherMatmulArgs& args);
/// Allocates a tensor for out[i].
/// Errors:  as output_layout(); kOutOfMemory.
[[nodiscard]] Result<Tensor> make_output(const AllGatherMatmulArgs& args, Device& device, int i = 0);
/// Allocates a tensor for gathered.
/// Errors:  as gathered_layout(); kOutOfMemory.
[[nodiscard]] Result<Tensor> make_gathered(const AllGatherMatmulArgs& args, Device& device);

}  // namespace tandem
