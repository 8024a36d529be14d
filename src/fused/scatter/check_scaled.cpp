#include <algorithm>

#include "base/format.hpp"
#include "base/try.hpp"
#include "base/with_last.hpp"
#include "fused/call/scaled_checks.hpp"
#include "fused/scatter/arguments.hpp"
#include "fused/scatter/call.hpp"
#include "fused/scatter/native.hpp"

namespace tandem {
namespace {

constexpr std::string_view kWho = "fused_scaled_matmul_reduce_scatter";

}  // namespace

Result<Layout> output_layout(const ScaledMatmulReduceScatterArgs& args, int world, int rank) {
  return fused::output_layout(kWho, fused::products_of(args), world, rank);
}

namespace fused {
namespace {

Result<void> check_lengths(const ScaledMatmulReduceScatterArgs& args) {
  const std::size_t num = args.a.size();
  const auto fits = [&](const OptionalTensorList& list) { return list.empty() || list.size() == num; };
  if (args.a_scale.size() == num && args.b_scale.size() == num && fits(args.bias) && fits(args.result_scale))
    return {};
  return failf(
      ErrorCode::kInvalidArgument,
      "{}: got {} a's, {} a_scales, {} b_scales, {} bias'es and {} result_scales, need one scale each a "
      "product, and none of the others or one a product",
      kWho, num, args.a_scale.size(), args.b_scale.size(), args.bias.size(), args.result_scale.size());
}

/// Scaled: f8. Not scaled: also what plain products take.
Result<void> check_factors(const Named& a, const Named& b, bool scaled, const Device& device) {
  if (!scaled && !is_f8(a.view->dtype)) {
    TANDEM_TRY(check_operand(kWho, a, a.view->dtype, device));
    return check_operand(kWho, b, a.view->dtype, device);
  }
  TANDEM_TRY(check_f8(kWho, a, device));
  return check_f8(kWho, b, device);
}

Result<void> check_product(const ScaledMatmulReduceScatterArgs& args, int j, std::int64_t n,
                           const Device& device) {
  const auto idx = static_cast<std::size_t>(j);
  const TensorView* a_scale = at(args.a_scale, j);
  const TensorView* b_scale = at(args.b_scale, j);
  if ((a_scale == nullptr) != (b_scale == nullptr)) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: product {} has {} only, need a_scale and b_scale or neither", kWho, j,
                 a_scale == nullptr ? "b_scale" : "a_scale");
  }
  TANDEM_TRY(check_factors({"a", j, &args.a[idx]}, {"b", j, &args.b[idx]}, a_scale != nullptr, device));
  if (a_scale != nullptr) {
    const Dims each = with_last(args.a[idx].sizes, 1);
    const Dims flat = {numel(each), 1};
    TANDEM_TRY(check_scale(kWho, {"a_scale", j, a_scale}, a_scale->sizes == flat ? flat : each, device));
    TANDEM_TRY(check_scale(kWho, {"b_scale", j, b_scale}, {1, n}, device));
  }
  return check_epilogue(kWho, j, at(args.bias, j), at(args.result_scale, j), n, device);
}

Result<void> check_outputs(const ScaledMatmulReduceScatterArgs& args, const Dims& sizes, const Group& group,
                           const Device& device) {
  const Named out{"out", -1, &args.out};
  TANDEM_TRY(check_out_type(kWho, out, device));
  TANDEM_TRY(check_has_layout(kWho, out, shard_layout(sizes, args.scatter_dim, group.size(), group.rank())));
  if (!args.product) return {};
  const Named product{"product", -1, &*args.product};
  if (args.product->dtype != args.out.dtype) {
    return failf(ErrorCode::kInvalidArgument, "{}: product is {}, need {} as out", kWho,
                 to_string(args.product->dtype), to_string(args.out.dtype));
  }
  TANDEM_TRY(check_tensor(kWho, product, device));
  return check_has_layout(kWho, product, {sizes, contiguous_strides(sizes)});
}

gemm::Scale scale_of_a(const ScaledMatmulReduceScatterArgs& args) {
  gemm::Scale scale = gemm::Scale::kNone;
  for (int j = 0; j < static_cast<int>(args.a.size()); ++j) {
    const TensorView* one = at(args.a_scale, j);
    if (one != nullptr) scale = std::max(scale, one->numel() == 1 ? gemm::Scale::kTensor : gemm::Scale::kRow);
  }
  return scale;
}

Result<void> check_memory_of(const ScaledMatmulReduceScatterArgs& args, const Named& output) {
  for (int j = 0; j < static_cast<int>(args.a.size()); ++j) {
    const auto idx = static_cast<std::size_t>(j);
    const Named inputs[] = {{"a", j, &args.a[idx]},
                            {"b", j, &args.b[idx]},
                            {"a_scale", j, at(args.a_scale, j)},
                            {"b_scale", j, at(args.b_scale, j)},
                            {"bias", j, at(args.bias, j)},
                            {"result_scale", j, at(args.result_scale, j)}};
    for (const Named& input : inputs) {
      if (input.view != nullptr) TANDEM_TRY(check_apart(kWho, output, input));
    }
  }
  return {};
}

}  // namespace

Result<CheckedScatter> check(const ScaledMatmulReduceScatterArgs& args, const Group& group,
                             const Stream& stream) {
  const Device& device = stream.device();
  TANDEM_ASSIGN(const Dims sizes, product_sizes(kWho, products_of(args)));
  TANDEM_TRY(check_planned(kWho, "plan_k", args.plan_k));
  TANDEM_TRY(check_lengths(args));
  TANDEM_TRY(check_outputs(args, sizes, group, device));
  TANDEM_TRY(check_reduction(kWho, args.reduce_op, args.partials, args.out.dtype));
  for (int j = 0; j < static_cast<int>(args.a.size()); ++j)
    TANDEM_TRY(check_product(args, j, sizes.back(), device));
  TANDEM_TRY(check_outputs_apart(kWho, args.out, args.product,
                                 [&](const Named& output) { return check_memory_of(args, output); }));

  ScatterProblem problem = scatter_problem_of(args, sizes, group, device);
  problem.is_scaled = true;
  problem.a_scale = scale_of_a(args);
  problem.fast_accum = args.fast_accum;
  ScatterCall call = ScatterCall::of(args);
  ask_native(call, device, problem);
  return CheckedScatter{std::move(call), problem};
}

}  // namespace fused
}  // namespace tandem
