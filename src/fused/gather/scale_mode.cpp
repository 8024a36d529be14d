#include "fused/gather/scale_mode.hpp"

#include <tandem/gemm/scaled_mm.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "base/with_last.hpp"
#include "fused/gather/arguments.hpp"

namespace tandem {
namespace {

constexpr std::string_view kWho = "fused_all_gather_scaled_matmul";

/// What a scale is held against.
struct Shapes {
  Dims shard_rows;    ///< a.shape[:-1] + [1]
  Dims full_rows;     ///< the same over all ranks
  Dims shard_blocks;  ///< a.shape[:-1] + [kb]
  Dims full_blocks;
  bool by_slices;  ///< the last dim is gathered
  int world;
};

bool is_rows(const TensorView& scale, const Dims& rows) {
  return scale.sizes == rows;
}

bool is_flat_rows(const TensorView& scale, const Dims& rows) {
  return scale.sizes == Dims{numel(with_last(rows, 1)), rows.back()};
}

bool is_all_rows(const TensorView& scale, const Shapes& shapes) {
  return is_rows(scale, shapes.full_rows) ||
         (shapes.by_slices && is_rows(scale, with_last(shapes.full_rows, shapes.world)));
}

bool fits(ScaleMode mode, const std::optional<TensorView>& scale, const Shapes& shapes) {
  if (!scale) return mode == ScaleMode::kNone;
  switch (mode) {
    case ScaleMode::kTensorwise:
      return scale->numel() == 1;
    case ScaleMode::kRowwiseSharded:
      return is_rows(*scale, shapes.shard_rows) || is_flat_rows(*scale, shapes.shard_rows);
    case ScaleMode::kRowwiseReplicated:
      return is_all_rows(*scale, shapes) || is_flat_rows(*scale, shapes.full_rows);
    case ScaleMode::kBlockwiseSharded:
      return is_rows(*scale, shapes.shard_blocks) || is_flat_rows(*scale, shapes.shard_blocks);
    case ScaleMode::kBlockwiseReplicated:
      return is_rows(*scale, shapes.full_blocks) || is_flat_rows(*scale, shapes.full_blocks);
    case ScaleMode::kNone:
    case ScaleMode::kDetect:
      break;
  }
  return false;
}

/// The first match of the list that the header states; there is a scale.
ScaleMode detect(const TensorView& scale, const Shapes& shapes) {
  if (is_rows(scale, shapes.shard_rows)) return ScaleMode::kRowwiseSharded;
  if (scale.numel() == 1) return ScaleMode::kTensorwise;
  if (is_all_rows(scale, shapes)) return ScaleMode::kRowwiseReplicated;
  if (is_flat_rows(scale, shapes.shard_rows)) return ScaleMode::kRowwiseSharded;
  if (is_flat_rows(scale, shapes.full_rows)) return ScaleMode::kRowwiseReplicated;
  return ScaleMode::kDetect;
}

ScaleMode mode_of(const AllGatherScaledMatmulArgs& args, const Shapes& shapes) {
  if (args.scale_mode != ScaleMode::kDetect) return args.scale_mode;
  return args.a_scale ? detect(*args.a_scale, shapes) : ScaleMode::kNone;
}

/// Of an a that has no scale before it is quantised.
Result<ScaleMode> mode_of_quantized(const AllGatherScaledMatmulArgs& args) {
  const ScaleMode mode = args.scale_mode == ScaleMode::kDetect ? ScaleMode::kRowwiseSharded : args.scale_mode;
  const bool fits = mode == ScaleMode::kRowwiseSharded || mode == ScaleMode::kBlockwiseSharded;
  if (fits && !args.a_scale) return mode;
  return failf(
      ErrorCode::kInvalidArgument,
      "{}: quantize is {}, a_scale has sizes {} and scale_mode is {}: need no a_scale, which is made, "
      "and rowwise_sharded, which detect means here, or blockwise_sharded",
      kWho, to_string(*args.quantize), args.a_scale ? to_string(args.a_scale->sizes) : "none",
      to_string(args.scale_mode));
}

}  // namespace

std::string_view to_string(ScaleMode mode) {
  switch (mode) {
    case ScaleMode::kDetect:
      return "detect";
    case ScaleMode::kTensorwise:
      return "tensorwise";
    case ScaleMode::kRowwiseSharded:
      return "rowwise_sharded";
    case ScaleMode::kRowwiseReplicated:
      return "rowwise_replicated";
    case ScaleMode::kBlockwiseSharded:
      return "blockwise_sharded";
    case ScaleMode::kBlockwiseReplicated:
      return "blockwise_replicated";
    case ScaleMode::kNone:
      return "none";
  }
  return "?";
}

Result<ScaleMode> detect_scale_mode(const AllGatherScaledMatmulArgs& args, int world) {
  if (args.quantize) return mode_of_quantized(args);
  TANDEM_ASSIGN(const Dims full, fused::gathered_sizes(kWho, fused::gathering_of(args)));
  const Shapes shapes{.shard_rows = with_last(args.a.sizes, 1),
                      .full_rows = with_last(full, 1),
                      .shard_blocks = with_last(args.a.sizes, gemm::num_scale_blocks(args.a.sizes.back())),
                      .full_blocks = with_last(full, gemm::num_scale_blocks(full.back())),
                      .by_slices = args.gather_dim == args.a.dim() - 1,
                      .world = world};
  const ScaleMode mode = mode_of(args, shapes);
  if (fits(mode, args.a_scale, shapes)) return mode;
  return failf(ErrorCode::kInvalidArgument,
               "{}: a_scale has sizes {} and scale_mode is {}; a has sizes {}, over all ranks {}: need one "
               "element (tensorwise), {} (rowwise_sharded), {} (rowwise_replicated), or no scale (none); and "
               "where scale_mode says so {} (blockwise_sharded) or {} (blockwise_replicated)",
               kWho, args.a_scale ? to_string(args.a_scale->sizes) : "none", to_string(args.scale_mode),
               to_string(args.a.sizes), to_string(full), to_string(shapes.shard_rows),
               to_string(shapes.full_rows), to_string(shapes.shard_blocks), to_string(shapes.full_blocks));
}

namespace fused {

TensorView scale_of_rows(const AllGatherScaledMatmulArgs& args, ScaleMode mode) {
  if (args.a_scale->dim() == args.a.dim()) return *args.a_scale;
  const bool is_replicated = mode == ScaleMode::kRowwiseReplicated || mode == ScaleMode::kBlockwiseReplicated;
  Dims sizes = args.a.sizes;
  if (is_replicated && args.gather_dim < args.a.dim() - 1) sizes[args.gather_dim] = args.gather_size;
  return unflatten_rows(*args.a_scale, sizes);
}

}  // namespace fused
}  // namespace tandem
