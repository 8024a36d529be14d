#include "fused/gather/scale_mode.hpp"

#include "base/format.hpp"
#include "base/try.hpp"
#include "base/with_last.hpp"
#include "fused/gather/arguments.hpp"

namespace tandem {
namespace {

constexpr std::string_view kWho = "fused_all_gather_scaled_matmul";

/// What a scale is held against.
struct Shapes {
  Dims shard_rows;  ///< a.shape[:-1] + [1]
  Dims full_rows;   ///< the same over all ranks
  bool by_slices;   ///< the last dim is gathered
  int world;
};

bool is_rows(const TensorView& scale, const Dims& rows) {
  return scale.sizes == rows;
}

bool is_flat_rows(const TensorView& scale, const Dims& rows) {
  return scale.sizes == Dims{numel(rows), 1};
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
    case ScaleMode::kNone:
      return "none";
  }
  return "?";
}

Result<ScaleMode> detect_scale_mode(const AllGatherScaledMatmulArgs& args, int world) {
  TANDEM_ASSIGN(const Dims full, fused::gathered_sizes(kWho, fused::gathering_of(args)));
  const Shapes shapes{.shard_rows = with_last(args.a.sizes, 1),
                      .full_rows = with_last(full, 1),
                      .by_slices = args.gather_dim == args.a.dim() - 1,
                      .world = world};
  const ScaleMode mode = mode_of(args, shapes);
  if (fits(mode, args.a_scale, shapes)) return mode;
  return failf(ErrorCode::kInvalidArgument,
               "{}: a_scale has sizes {} and scale_mode is {}; a has sizes {}, over all ranks {}: need one "
               "element (tensorwise), {} (rowwise_sharded), {} (rowwise_replicated), or no scale (none)",
               kWho, args.a_scale ? to_string(args.a_scale->sizes) : "none", to_string(args.scale_mode),
               to_string(args.a.sizes), to_string(full), to_string(shapes.shard_rows),
               to_string(shapes.full_rows));
}

namespace fused {

TensorView rowwise_scale(const AllGatherScaledMatmulArgs& args, ScaleMode mode) {
  TensorView scale = *args.a_scale;
  if (scale.dim() == args.a.dim()) return scale;
  const std::int64_t row_stride = scale.stride(0);
  scale.sizes = with_last(args.a.sizes, 1);
  if (mode == ScaleMode::kRowwiseReplicated && args.gather_dim < args.a.dim() - 1) {
    scale.sizes[args.gather_dim] = args.gather_size;
  }
  scale.strides = contiguous_strides(scale.sizes);
  for (int d = 0; d < scale.dim(); ++d) scale.strides[d] *= row_stride;
  return scale;
}

}  // namespace fused
}  // namespace tandem
