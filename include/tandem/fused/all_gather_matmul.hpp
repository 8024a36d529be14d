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

struct AllGatherMatmulArgs {
  TensorView a = {};                        ///< this rank's shard [..., k]; any strides
  TensorList b = {};                        ///< [k, n_i]; [gather_size, n_i] when gathering the last dim
  int gather_dim = 0;                       ///< in [0, a.dim())
  std::int64_t gather_size = 0;             ///< size of gather_dim over all ranks
  TensorList out = {};                      ///< one a b, with output_layout()
  std::optional<TensorView> gathered = {};  ///< all of a, with gathered_layout(); left out: not kept
  TensorList bias = {};                     ///< empty, or one [n_i] a b
  /// Set if `a` is symmetric memory, in the layout that output_layout() has for out and at the same place of
  /// the block on every rank: peers then read it in place. `native`, which pushes, does without.
  std::shared_ptr<symm::Handle> a_handle = {};
  Algorithm algorithm = Algorithm::kAuto;
  /// Columns of a rank's products together, as `auto` shall count them: the same on every rank, while n_i may
  /// differ. 0: not told; b counts as square then, and measured times do not count.
  std::int64_t plan_n = 0;
  trace::EnqueueTrace* trace = nullptr;  ///< receives what `pipelined` enqueues
};

/// Gathers a along a dim and multiplies it with each b: out_i = all_gather(a) * b_i (+ bias_i).
/// Shapes:  rank r holds shard_of(gather_size, W, r) of gather_dim. out_i: a's sizes with gather_size and
///          n_i.
/// Types:   f32, bf16 or f16, the same for all; f32 sums; one rounding. The same bits on every rank, for
///          every W and algorithm, unless the last dim is gathered: then K-slices add in rank order. That
///          holds on CPUs, and on GPUs as far as the vendor's product has the same bits for any number of
///          rows.
/// Memory:  each out and gathered overlap nothing: no input, and not each other.
/// Order:   enqueued on `stream`; on a GPU the host waits for the others in the first call of a problem. out
///          is ready for later work on `stream`, not for the host. In a recording of the caller's: behind an
///          eager call with the same tensors on the same stream, which makes the memory and products that
///          cannot be made then; on a GPU an `auto` call that takes native makes those of what a recording
///          would run, too.
/// Errors:  kInvalidArgument now, before anything is enqueued (the other ranks get kMismatch); kMismatch on
///          every rank when dtype, k, gather_size, gather_dim, other sizes of a, plan_n or algorithm differ
///          (n_i and the number of b's may); kTimeout / kPeerLost at the next Stream::synchronize().
/// Source:  docs/design/schedules.md
[[nodiscard]] Result<OpReport> fused_all_gather_matmul(const AllGatherMatmulArgs& args, Group& group,
                                                       Stream& stream);

/// What this call would run here, and why; the decision is kept for the call itself. Local: nothing is
/// enqueued, and no other rank hears of it. Errors: what is wrong with the arguments on this rank;
/// kUnsupported with the reason.
[[nodiscard]] Result<OpReport> plan(const AllGatherMatmulArgs& args, Group& group, Stream& stream);
/// Whether plan() has an answer, and its error if not.
[[nodiscard]] Support can_run(const AllGatherMatmulArgs& args, Group& group, Stream& stream);

/// What out[i] must look like: memory order is gather-dim-major, as in PyTorch's op.
/// Errors: kInvalidArgument when a, b[i], gather_dim and gather_size do not fit.
[[nodiscard]] Result<Layout> output_layout(const AllGatherMatmulArgs& args, int i);
[[nodiscard]] Result<Layout> gathered_layout(const AllGatherMatmulArgs& args);
/// A new tensor for out[i], or for gathered. Errors: as output_layout(); kOutOfMemory.
[[nodiscard]] Result<Tensor> make_output(const AllGatherMatmulArgs& args, Device& device, int i = 0);
[[nodiscard]] Result<Tensor> make_gathered(const AllGatherMatmulArgs& args, Device& device);

}  // namespace tandem
