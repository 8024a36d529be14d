#include <utility>

#include "base/format.hpp"
#include "base/try.hpp"
#include "base/with_last.hpp"
#include "fused/call/checks.hpp"
#include "fused/call/scaled_checks.hpp"
#include "fused/gather/algorithms.hpp"
#include "fused/gather/arguments.hpp"
#include "fused/gather/call.hpp"
#include "fused/gather/scale_mode.hpp"

namespace tandem {
namespace {

constexpr std::string_view kWho = "fused_all_gather_scaled_matmul";

/// Sizes of also_gather[i] over all ranks.
Result<Dims> also_gathered_sizes(const AllGatherScaledMatmulArgs& args, const Dims& gathered, int i) {
  const Dims& sizes = args.also_gather[static_cast<std::size_t>(i)].sizes;
  const bool gathers_last = args.gather_dim == args.a.dim() - 1;
  const std::int64_t last = gathers_last || sizes.empty() ? args.a.sizes.back() : sizes.back();
  if (!(sizes == with_last(args.a.sizes, last))) {
    return failf(ErrorCode::kInvalidArgument, "{}: also_gather[{}] has sizes {}, need those of a{}: {}", kWho,
                 i, to_string(sizes), gathers_last ? "" : " but the last", to_string(args.a.sizes));
  }
  const Dims all = gathers_last ? gathered : with_last(gathered, last);
  if (!fused::is_representable(all, DType::kF64)) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: all of also_gather[{}] would have sizes {}, need at most 2^62 bytes", kWho, i,
                 to_string(all));
  }
  return all;
}

}  // namespace

Result<Layout> output_layout(const AllGatherScaledMatmulArgs& args, int i) {
  return fused::output_layout(kWho, fused::gathering_of(args), args.b, i);
}

Result<Layout> gathered_layout(const AllGatherScaledMatmulArgs& args) {
  return fused::gathered_layout(kWho, fused::gathering_of(args));
}

Result<Layout> also_gathered_layout(const AllGatherScaledMatmulArgs& args, int i) {
  TANDEM_ASSIGN(const Dims gathered, fused::gathered_sizes(kWho, fused::gathering_of(args)));
  if (i < 0 || i >= static_cast<int>(args.also_gather.size())) {
    return failf(ErrorCode::kInvalidArgument, "{}: also_gather[{}] of {} does not exist", kWho, i,
                 args.also_gather.size());
  }
  TANDEM_ASSIGN(const Dims sizes, also_gathered_sizes(args, gathered, i));
  return fused::front_major_layout(sizes, args.gather_dim);
}

namespace fused {
namespace {

Result<void> check_lengths(const AllGatherScaledMatmulArgs& args, ScaleMode mode) {
  const std::size_t num_b = args.b.size();
  const auto fits = [&](const OptionalTensorList& list) { return list.empty() || list.size() == num_b; };
  if (num_b == 0 || args.out.size() != num_b || !fits(args.bias) || !fits(args.result_scale)) {
    return failf(
        ErrorCode::kInvalidArgument,
        "{}: got {} b's, {} out's, {} bias'es and {} result_scales, need one out a b, and none of the "
        "others or one a b",
        kWho, num_b, args.out.size(), args.bias.size(), args.result_scale.size());
  }
  const std::size_t need = mode == ScaleMode::kNone ? 0 : num_b;
  if (args.b_scale.size() != need) {
    return failf(ErrorCode::kInvalidArgument, "{}: got {} b_scales for {} b's, need {} with scale_mode {}",
                 kWho, args.b_scale.size(), num_b, need, tandem::to_string(mode));
  }
  if (args.also_gather.size() > kMaxAlsoGathered || args.also_gathered.size() != args.also_gather.size()) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: got {} also_gather and {} also_gathered, need as many, up to {}", kWho,
                 args.also_gather.size(), args.also_gathered.size(), kMaxAlsoGathered);
  }
  return {};
}

Result<void> check_a(const AllGatherScaledMatmulArgs& args, const Device& device) {
  const Named a{"a", -1, &args.a};
  if (!args.quantize) return check_f8(kWho, a, device);
  if (!is_f8(*args.quantize)) {
    return failf(ErrorCode::kInvalidArgument, "{}: quantize is {}, need f8e4m3 or f8e5m2", kWho,
                 to_string(*args.quantize));
  }
  TANDEM_TRY(check_operand(kWho, a, args.a.dtype, device));
  if (args.gather_dim < args.a.dim() - 1) return {};
  return failf(
      ErrorCode::kInvalidArgument,
      "{}: quantize is {} and gather_dim {} is the last of a of sizes {}: a row's scale needs all of "
      "k, and a rank has a slice. Gather another dim, or pass slices of gemm::quantize_rows() as a",
      kWho, to_string(*args.quantize), args.gather_dim, to_string(args.a.sizes));
}

/// [kb, n] or [kb, nb]; one element is no exception, because slices of k take their rows of it.
Result<void> check_block_scale(const Named& named, const Dims& sizes, std::int64_t n, const Device& device) {
  const std::int64_t kb = gemm::num_scale_blocks(sizes.back());
  const Dims vectors = {kb, n};
  const Dims blocks = {kb, gemm::num_scale_blocks(n)};
  const TensorView& scale = *named.view;
  if (scale.dtype != DType::kF32 || !(scale.sizes == vectors || scale.sizes == blocks)) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} is {} {}, need f32 {} or {} with scales by blocks",
                 kWho, to_string(named), to_string(scale.dtype), to_string(scale.sizes), to_string(vectors),
                 to_string(blocks));
  }
  return check_tensor(kWho, named, device);
}

Result<void> check_b_scale(const AllGatherScaledMatmulArgs& args, int i, const Dims& sizes, ScaleMode mode,
                           const Device& device) {
  if (args.b_scale.empty()) return {};
  const Named named{"b_scale", i, &args.b_scale[static_cast<std::size_t>(i)]};
  const std::int64_t n = args.b[static_cast<std::size_t>(i)].size(1);
  if (is_by_blocks(mode)) return check_block_scale(named, sizes, n, device);
  return check_scale(kWho, named, {1, n}, device);
}

/// A slice of k has whole blocks of scales, but for the last one's end. Scales by blocks are never detected.
Result<void> check_slices(const AllGatherScaledMatmulArgs& args, const Group& group) {
  const std::int64_t stride = shard_stride(args.gather_size, group.size());
  const bool is_cut = args.gather_dim == args.a.dim() - 1 && stride < args.gather_size;
  if (!is_by_blocks(args.scale_mode) || !is_cut || stride % gemm::kScaleBlock == 0) return {};
  const std::int64_t whole = gemm::kScaleBlock * group.size();
  return failf(
      ErrorCode::kInvalidArgument,
      "{}: scale_mode is {} and gather_dim {} is the last: {} ranks' slices of gather_size {} begin at "
      "multiples of {}, need multiples of {}, the elements of k that share a scale. Gather another dim, "
      "or pad gather_size with zeros to {}",
      kWho, tandem::to_string(args.scale_mode), args.gather_dim, group.size(), args.gather_size, stride,
      gemm::kScaleBlock, (args.gather_size + whole - 1) / whole * whole);
}

Result<void> check_products(const AllGatherScaledMatmulArgs& args, const Dims& sizes, ScaleMode mode,
                            const Device& device) {
  for (int i = 0; i < static_cast<int>(args.b.size()); ++i) {
    const auto idx = static_cast<std::size_t>(i);
    TANDEM_TRY(check_f8(kWho, {"b", i, &args.b[idx]}, device));
    TANDEM_ASSIGN(const Dims need, output_sizes(kWho, args.b[idx], sizes, i));
    const Named out{"out", i, &args.out[idx]};
    TANDEM_TRY(check_out_type(kWho, out, device));
    TANDEM_TRY(check_has_layout(kWho, out, front_major_layout(need, args.gather_dim)));
    TANDEM_TRY(check_b_scale(args, i, sizes, mode, device));
    TANDEM_TRY(check_epilogue(kWho, i, at(args.bias, i), at(args.result_scale, i), need.back(), device));
  }
  return {};
}

/// A whole that is gathered: its type is the shard's.
Result<void> check_whole(const Named& named, const TensorView& shard, const Layout& need,
                         const Device& device) {
  if (named.view->dtype != shard.dtype) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} is {}, need {} as its shard", kWho, to_string(named),
                 to_string(named.view->dtype), to_string(shard.dtype));
  }
  TANDEM_TRY(check_tensor(kWho, named, device));
  return check_has_layout(kWho, named, need);
}

Result<void> check_wholes(const AllGatherScaledMatmulArgs& args, const Dims& sizes, const Device& device) {
  if (args.gathered) {
    TANDEM_TRY(check_whole({"gathered", -1, &*args.gathered}, args.a,
                           front_major_layout(sizes, args.gather_dim), device));
  }
  for (int i = 0; i < static_cast<int>(args.also_gather.size()); ++i) {
    const auto idx = static_cast<std::size_t>(i);
    TANDEM_TRY(check_tensor(kWho, {"also_gather", i, &args.also_gather[idx]}, device));
    TANDEM_ASSIGN(const Dims all, also_gathered_sizes(args, sizes, i));
    TANDEM_TRY(check_whole({"also_gathered", i, &args.also_gathered[idx]}, args.also_gather[idx],
                           front_major_layout(all, args.gather_dim), device));
  }
  return {};
}

/// Calls `use` with each tensor that is written, until it fails.
template <class Use>
Result<void> for_each_output(const AllGatherScaledMatmulArgs& args, Use use) {
  for (int i = 0; i < static_cast<int>(args.out.size()); ++i)
    TANDEM_TRY(use(Named{"out", i, &args.out[static_cast<std::size_t>(i)]}));
  for (int i = 0; i < static_cast<int>(args.also_gathered.size()); ++i)
    TANDEM_TRY(use(Named{"also_gathered", i, &args.also_gathered[static_cast<std::size_t>(i)]}));
  return args.gathered ? use(Named{"gathered", -1, &*args.gathered}) : Result<void>();
}

/// The same for tensors that are read.
template <class Use>
Result<void> for_each_input(const AllGatherScaledMatmulArgs& args, Use use) {
  TANDEM_TRY(use(Named{"a", -1, &args.a}));
  if (args.a_scale) TANDEM_TRY(use(Named{"a_scale", -1, &*args.a_scale}));
  for (int i = 0; i < static_cast<int>(args.b.size()); ++i) {
    const auto idx = static_cast<std::size_t>(i);
    TANDEM_TRY(use(Named{"b", i, &args.b[idx]}));
    if (!args.b_scale.empty()) TANDEM_TRY(use(Named{"b_scale", i, &args.b_scale[idx]}));
    if (const TensorView* bias = at(args.bias, i)) TANDEM_TRY(use(Named{"bias", i, bias}));
    if (const TensorView* scale = at(args.result_scale, i)) TANDEM_TRY(use(Named{"result_scale", i, scale}));
  }
  for (int i = 0; i < static_cast<int>(args.also_gather.size()); ++i)
    TANDEM_TRY(use(Named{"also_gather", i, &args.also_gather[static_cast<std::size_t>(i)]}));
  return {};
}

Result<void> check_memory(const AllGatherScaledMatmulArgs& args) {
  return for_each_output(args, [&](const Named& output) -> Result<void> {
    TANDEM_TRY(for_each_input(args, [&](const Named& input) { return check_apart(kWho, output, input); }));
    bool is_earlier = true;  // each pair of outputs once
    return for_each_output(args, [&](const Named& other) -> Result<void> {
      is_earlier = is_earlier && other.view != output.view;
      return is_earlier ? check_apart(kWho, output, other) : Result<void>();
    });
  });
}

}  // namespace

Result<CheckedGather> check(const AllGatherScaledMatmulArgs& args, const Group& group, const Stream& stream) {
  const Device& device = stream.device();
  TANDEM_ASSIGN(const Dims sizes, gathered_sizes(kWho, gathering_of(args)));
  TANDEM_TRY(check_planned(kWho, "plan_n", args.plan_n));
  TANDEM_TRY(check_a(args, device));
  TANDEM_TRY(check_shard(kWho, gathering_of(args), group));
  TANDEM_TRY(check_slices(args, group));
  TANDEM_ASSIGN(const ScaleMode mode, detect_scale_mode(args, group.size()));
  if (args.a_scale)
    TANDEM_TRY(check_scale(kWho, {"a_scale", -1, &*args.a_scale}, args.a_scale->sizes, device));
  TANDEM_TRY(check_lengths(args, mode));
  TANDEM_TRY(check_products(args, sizes, mode, device));
  TANDEM_TRY(check_wholes(args, sizes, device));
  TANDEM_TRY(check_memory(args));

  GatherProblem problem = gather_problem_of(args, sizes, group, device);
  problem.is_scaled = true;
  problem.scale_mode = mode;
  problem.quantize = args.quantize;
  problem.fast_accum = args.fast_accum;
  problem.num_also_gathered = static_cast<int>(args.also_gather.size());
  for (std::size_t i = 0; i < args.also_gather.size(); ++i)
    problem.also_gather[i] = {.dtype = args.also_gather[i].dtype, .last = args.also_gather[i].sizes.back()};
  GatherCall call = GatherCall::of(args, mode);
  find_copies(call, problem);
  ask_native(call, device, problem);
  return CheckedGather{std::move(call), problem};
}

}  // namespace fused
}  // namespace tandem
