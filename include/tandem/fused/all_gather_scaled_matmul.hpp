#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/support.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/base/tensor_list.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/fused/report.hpp>
#include <tandem/trace/enqueue_trace.hpp>

namespace tandem {

/// How a's scale goes with the gather. `full` is a over all ranks.
enum class ScaleMode : std::uint8_t {
  kDetect,             ///< by the scale's shape, see detect_scale_mode()
  kTensorwise,         ///< one element, the same on every rank
  kRowwiseSharded,     ///< the shard's own: a.shape[:-1] + [1]; gathered along with a
  kRowwiseReplicated,  ///< of all rows, on every rank: full.shape[:-1] + [1]
  kNone,               ///< no scale of a, none of b
};
[[nodiscard]] std::string_view to_string(ScaleMode mode);

struct AllGatherScaledMatmulArgs {
  TensorView a = {};                       ///< this rank's shard [..., k], f8e4m3 or f8e5m2; any strides
  TensorList b = {};                       ///< [k, n_i], f8; [gather_size, n_i] when gathering the last dim
  std::optional<TensorView> a_scale = {};  ///< f32, as scale_mode has it; row-wise also 2-D, [rows, 1]
  ScaleMode scale_mode = ScaleMode::kDetect;
  TensorList b_scale = {};                  ///< f32, one element or [1, n_i]; mode none: empty
  int gather_dim = 0;                       ///< in [0, a.dim())
  std::int64_t gather_size = 0;             ///< size of gather_dim over all ranks
  TensorList out = {};                      ///< one a b, with output_layout(); f32, bf16, f16 or f8
  std::optional<TensorView> gathered = {};  ///< all of a, with gathered_layout(); left out: not kept
  OptionalTensorList bias = {};             ///< empty, or one a b: [n_i], any type of out
  OptionalTensorList result_scale = {};     ///< empty, or one a b: f32, one element
  bool fast_accum = false;                  ///< allows less exact sums; the CPU has none
  /// Further shards that the same schedule gathers, at most kMaxBeside: any type and strides; sizes of a, the
  /// last free unless that is the one gathered.
  TensorList beside = {};
  TensorList beside_gathered = {};  ///< one each, with beside_layout()
  Algorithm algorithm = Algorithm::kAuto;
  /// Columns of a rank's products together, as `auto` shall count them: the same on every rank, while n_i may
  /// differ. 0: not told; b counts as square then, and measured times do not count.
  std::int64_t plan_n = 0;
  trace::EnqueueTrace* trace = nullptr;  ///< receives what `pipelined` enqueues
};
inline constexpr int kMaxBeside = 6;

/// Gathers a along a dim and multiplies it with each b, as gemm::scaled_matmul() does:
/// out_i = (all_gather(a) * b_i * scales + bias_i) * result_scale_i.
/// Shapes:  as fused_all_gather_matmul. A row-wise scale of a gathered last dim: the shard's own is for its
///          slice of k; a replicated one has 1 last, for all slices, or W, one column a slice.
/// Types:   f32 sums and one rounding to out_i; f8 saturates. The same bits on every rank, for every W and
///          algorithm, unless the last dim is gathered: then each slice's product takes the slice's scales,
///          and products add in f32 in rank order.
/// Memory:  as fused_all_gather_matmul, and so does each beside_gathered.
/// Order:   as fused_all_gather_matmul.
/// Errors:  as fused_all_gather_matmul; must agree too: scale_mode as found, types and last sizes of beside.
///          kUnsupported on CUDA devices, which have no scaled products yet.
/// Source:  docs/design/schedules.md
[[nodiscard]] Result<OpReport> fused_all_gather_scaled_matmul(const AllGatherScaledMatmulArgs& args,
                                                              Group& group, Stream& stream);

/// As for fused_all_gather_matmul.
[[nodiscard]] Result<OpReport> plan(const AllGatherScaledMatmulArgs& args, Group& group, Stream& stream);
[[nodiscard]] Support can_run(const AllGatherScaledMatmulArgs& args, Group& group, Stream& stream);

/// The mode that a, a_scale, scale_mode, gather_dim and gather_size come to on a group of `world`: scale_mode
/// itself unless it is kDetect, else the first of these that fits: no memory: none; a's sizes with 1 last:
/// row-wise, sharded; one element: tensor-wise; full's sizes with 1 last (or `world` if that is gathered):
/// row-wise, replicated; [rows of a, 1]: sharded; [rows of full, 1]: replicated. A shard of one row with a
/// scale of its own counts as sharded; where shards are uneven, say what is meant.
/// Errors:  kInvalidArgument with both shapes when none fits, or what scale_mode says does not.
[[nodiscard]] Result<ScaleMode> detect_scale_mode(const AllGatherScaledMatmulArgs& args, int world);

/// What out[i], gathered and beside_gathered[i] must look like: as for fused_all_gather_matmul.
/// Errors: kInvalidArgument when a, b[i], beside[i], gather_dim and gather_size do not fit.
[[nodiscard]] Result<Layout> output_layout(const AllGatherScaledMatmulArgs& args, int i);
[[nodiscard]] Result<Layout> gathered_layout(const AllGatherScaledMatmulArgs& args);
[[nodiscard]] Result<Layout> beside_layout(const AllGatherScaledMatmulArgs& args, int i);
/// A new tensor of type `dtype` for out[i], or one for gathered. Errors: as output_layout(); kOutOfMemory.
[[nodiscard]] Result<Tensor> make_output(const AllGatherScaledMatmulArgs& args, DType dtype, Device& device,
                                         int i = 0);
[[nodiscard]] Result<Tensor> make_gathered(const AllGatherScaledMatmulArgs& args, Device& device);

}  // namespace tandem
