#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <tandem/base/dtype.hpp>
#include <tandem/base/error.hpp>
#include <tandem/base/support.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/base/tensor_list.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/fused/report.hpp>
#include <tandem/trace/enqueue_trace.hpp>

namespace tandem {

/// Which elements of a each number of a_scale belongs to. `full` is a over all ranks. Scales by blocks are
/// for each row and each gemm::kScaleBlock of k: kb is the num_scale_blocks() of the last size.
enum class ScaleMode : std::uint8_t {
  kDetect,               ///< found from the scale's shape, see detect_scale_mode()
  kTensorwise,           ///< one element, the same on every rank
  kRowwiseSharded,       ///< the shard's rows: a.shape[:-1] + [1]; gathered along with a
  kRowwiseReplicated,    ///< all rows, on every rank: full.shape[:-1] + [1]
  kBlockwiseSharded,     ///< the shard's: a.shape[:-1] + [kb]; gathered along with a; never detected
  kBlockwiseReplicated,  ///< all, on every rank: full.shape[:-1] + [kb]; never detected
  kNone,                 ///< neither a nor b has a scale
};
/// "detect", "tensorwise", "rowwise_sharded", "rowwise_replicated", "blockwise_sharded",
/// "blockwise_replicated", "none".
[[nodiscard]] std::string_view to_string(ScaleMode mode);

/// Largest number of AllGatherScaledMatmulArgs::beside.
inline constexpr int kMaxAlsoGathered = 6;

/// The arguments of fused_all_gather_scaled_matmul().
struct AllGatherScaledMatmulArgs {
  TensorView a = {};  ///< this rank's shard [..., k], f8e4m3 or f8e5m2, or as quantize says; any strides
  TensorList b = {};  ///< f8 [k, n_i]; [gather_size, n_i] if the last dim is gathered
  std::optional<TensorView> a_scale = {};  ///< f32, as scale_mode says, or 2-D: [rows, last size]
  ScaleMode scale_mode = ScaleMode::kDetect;
  /// f8e4m3 or f8e5m2: a is f32, bf16 or f16 and is gathered as it is. What has arrived is rounded by
  /// gemm::quantize_rows() right before its products. scale_mode is kRowwiseSharded, which kDetect means
  /// here, or kBlockwiseSharded; a_scale is left out; the last dim is not gathered. This is for callers who
  /// keep `gathered`, in a's type. Others call quantize_rows() first, which gathers half of a bf16 a's bytes.
  std::optional<DType> quantize = {};
  /// f32; empty with kNone. One element or [1, n_i]; by blocks [kb, n_i] or [kb, nb_i] of all of k, where
  /// nb_i is the num_scale_blocks() of n_i.
  TensorList b_scale = {};
  int gather_dim = 0;                       ///< in [0, a.dim())
  std::int64_t gather_size = 0;             ///< size of gather_dim over all ranks
  TensorList out = {};                      ///< one for each b, with output_layout(); f32, bf16, f16 or f8
  std::optional<TensorView> gathered = {};  ///< receives all of a, with gathered_layout()
  OptionalTensorList bias = {};             ///< empty, or one for each b: [n_i], any type of out
  OptionalTensorList result_scale = {};     ///< empty, or one for each b: f32, one element
  bool fast_accum = false;                  ///< allows less exact sums; the CPU has none
  /// Further shards that the same schedule gathers, at most kMaxAlsoGathered, of any type and strides. They
  /// have a's sizes. The last size is free unless the last dim is gathered.
  TensorList also_gather = {};
  TensorList also_gathered = {};  ///< one for each, with also_gathered_layout()
  Algorithm algorithm = Algorithm::kAuto;
  std::int64_t plan_n = 0;               ///< as in AllGatherMatmulArgs
  trace::EnqueueTrace* trace = nullptr;  ///< receives what `pipelined` enqueues
};

/// Gathers a along a dim and multiplies it with each b, as gemm::scaled_matmul() does:
/// out_i = (all_gather(a) * b_i * scales + bias_i) * result_scale_i. With quantize, all_gather(a) is rounded
/// to f8 in between, and its scales are those of gemm::quantize_rows().
/// Shapes:  As fused_all_gather_matmul(). If the last dim is gathered, a sharded row-wise scale belongs to
///          the rank's slice of k. A replicated one has last size 1 for all slices, or W, one column for
///          each. Scales by blocks then need slices that begin at multiples of gemm::kScaleBlock.
/// Types:   Sums are f32 and rounded once to out_i; f8 saturates. Every rank, W and algorithm give the same
///          bits with products of tandem's own, unless the last dim is gathered. Then each slice's product
///          takes the slice's scales, and products are added in f32 in rank order.
/// Memory:  As fused_all_gather_matmul(). Each also_gathered is an output too.
/// Order:   As fused_all_gather_matmul().
/// Errors:  As fused_all_gather_matmul(). The detected scale mode, quantize, fast_accum, and types and last
///          sizes of beside, must agree too. `native` is kUnsupported with quantize.
/// Source:  docs/design/schedules.md
[[nodiscard]] Result<OpReport> fused_all_gather_scaled_matmul(const AllGatherScaledMatmulArgs& args,
                                                              Group& group, Stream& stream);

/// The same with scales by blocks: scale_mode is kBlockwiseSharded, unless it is kBlockwiseReplicated. plan()
/// and can_run() take the arguments with that mode.
/// Errors:  As fused_all_gather_scaled_matmul(); kInvalidArgument for any other scale_mode but kDetect.
[[nodiscard]] Result<OpReport> fused_all_gather_block_scaled_matmul(const AllGatherScaledMatmulArgs& args,
                                                                    Group& group, Stream& stream);

/// As for fused_all_gather_matmul().
[[nodiscard]] Result<OpReport> plan(const AllGatherScaledMatmulArgs& args, Group& group, Stream& stream);
/// Whether plan() succeeds, and its error if not.
[[nodiscard]] Support can_run(const AllGatherScaledMatmulArgs& args, Group& group, Stream& stream);

/// The mode of these arguments in a group of `world` ranks. It is scale_mode, unless that is kDetect. Then it
/// is row-wise, sharded, where a is quantised, and else the first of these that fits. No scale: none. a's
/// sizes with 1 last: row-wise, sharded. One element: tensor-wise. full's sizes with 1 last, or `world` if
/// the last dim is gathered: row-wise, replicated. [rows of a, 1]: sharded. [rows of full, 1]: replicated. A
/// shard of one row with a scale of its own counts as sharded. Scales by blocks are never found: their shapes
/// may be those of the modes above. Where shards are uneven, pass the mode that you mean.
/// Errors:  kInvalidArgument with both shapes when no mode fits, or when scale_mode does not.
[[nodiscard]] Result<ScaleMode> detect_scale_mode(const AllGatherScaledMatmulArgs& args, int world);

/// The layout that out[i] must have, as for fused_all_gather_matmul().
/// Errors:  kInvalidArgument when a, b[i], gather_dim and gather_size do not fit.
[[nodiscard]] Result<Layout> output_layout(const AllGatherScaledMatmulArgs& args, int i);
/// The layout that gathered must have.
[[nodiscard]] Result<Layout> gathered_layout(const AllGatherScaledMatmulArgs& args);
/// The layout that also_gathered[i] must have.
/// Errors:  as output_layout(), and for a also_gather[i] that does not fit.
[[nodiscard]] Result<Layout> also_gathered_layout(const AllGatherScaledMatmulArgs& args, int i);
/// Allocates a tensor of type `dtype` for out[i].
/// Errors:  as output_layout(); kOutOfMemory.
[[nodiscard]] Result<Tensor> make_output(const AllGatherScaledMatmulArgs& args, DType dtype, Device& device,
                                         int i = 0);
/// Allocates a tensor for gathered.
/// Errors:  as gathered_layout(); kOutOfMemory.
[[nodiscard]] Result<Tensor> make_gathered(const AllGatherScaledMatmulArgs& args, Device& device);

}  // namespace tandem
