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

constexpr std::string_view kScatter = "fused_scaled_matmul_reduce_scatter";
constexpr std::string_view kAllReduce = "fused_scaled_matmul_all_reduce";

/// An all-reduce is the scatter of its rows, whose sums go to all ranks.
ScaledMatmulReduceScatterArgs scatter_of(const ScaledMatmulAllReduceArgs& args) {
  return {.a = args.a,
          .b = args.b,
          .a_scale = args.a_scale,
          .b_scale = args.b_scale,
          .bias = args.bias,
          .result_scale = args.result_scale,
          .reduce_op = args.reduce_op,
          .out = args.out,
          .product = args.product,
          .partials = args.partials,
          .fast_accum = args.fast_accum,
          .algorithm = args.algorithm,
          .plan_k = args.plan_k};
}

}  // namespace

Result<Layout> output_layout(const ScaledMatmulReduceScatterArgs& args, int world, int rank) {
  return fused::output_layout(kScatter, fused::products_of(args), world, rank);
}

Result<Layout> output_layout(const ScaledMatmulAllReduceArgs& args) {
  return fused::product_sizes(kAllReduce, fused::products_of(scatter_of(args))).map(fused::whole_layout);
}

namespace fused {
namespace {

Result<void> check_lengths(std::string_view who, const ScaledMatmulReduceScatterArgs& args) {
  const std::size_t num = args.a.size();
  const auto fits = [&](const OptionalTensorList& list) { return list.empty() || list.size() == num; };
  if (args.a_scale.size() == num && args.b_scale.size() == num && fits(args.bias) && fits(args.result_scale))
    return {};
  return failf(
      ErrorCode::kInvalidArgument,
      "{}: got {} a's, {} a_scales, {} b_scales, {} bias'es and {} result_scales, need one scale each a "
      "product, and none of the others or one a product",
      who, num, args.a_scale.size(), args.b_scale.size(), args.bias.size(), args.result_scale.size());
}

/// Scaled: f8. Not scaled: also what plain products take.
Result<void> check_factors(std::string_view who, const Named& a, const Named& b, bool scaled,
                           const Device& device) {
  if (!scaled && !is_f8(a.view->dtype)) {
    TANDEM_TRY(check_operand(who, a, a.view->dtype, device));
    return check_operand(who, b, a.view->dtype, device);
  }
  TANDEM_TRY(check_f8(who, a, device));
  return check_f8(who, b, device);
}

Result<void> check_product(std::string_view who, const ScaledMatmulReduceScatterArgs& args, int j,
                           std::int64_t n, const Device& device) {
  const auto idx = static_cast<std::size_t>(j);
  const TensorView* a_scale = at(args.a_scale, j);
  const TensorView* b_scale = at(args.b_scale, j);
  if ((a_scale == nullptr) != (b_scale == nullptr)) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: product {} has {} only, need a_scale and b_scale or neither", who, j,
                 a_scale == nullptr ? "b_scale" : "a_scale");
  }
  TANDEM_TRY(check_factors(who, {"a", j, &args.a[idx]}, {"b", j, &args.b[idx]}, a_scale != nullptr, device));
  if (a_scale != nullptr) {
    const Dims each = with_last(args.a[idx].sizes, 1);
    const Dims flat = {numel(each), 1};
    TANDEM_TRY(check_scale(who, {"a_scale", j, a_scale}, a_scale->sizes == flat ? flat : each, device));
    TANDEM_TRY(check_scale(who, {"b_scale", j, b_scale}, {1, n}, device));
  }
  return check_epilogue(who, j, at(args.bias, j), at(args.result_scale, j), n, device);
}

Result<void> check_outputs(std::string_view who, const ScaledMatmulReduceScatterArgs& args, const Dims& sizes,
                           const Layout& need, const Device& device) {
  const Named out{"out", -1, &args.out};
  TANDEM_TRY(check_out_type(who, out, device));
  TANDEM_TRY(check_has_layout(who, out, need));
  if (!args.product) return {};
  const Named product{"product", -1, &*args.product};
  if (args.product->dtype != args.out.dtype) {
    return failf(ErrorCode::kInvalidArgument, "{}: product is {}, need {} as out", who,
                 to_string(args.product->dtype), to_string(args.out.dtype));
  }
  TANDEM_TRY(check_tensor(who, product, device));
  return check_has_layout(who, product, whole_layout(sizes));
}

gemm::Scale scale_of_a(const ScaledMatmulReduceScatterArgs& args) {
  gemm::Scale scale = gemm::Scale::kNone;
  for (int j = 0; j < static_cast<int>(args.a.size()); ++j) {
    const TensorView* one = at(args.a_scale, j);
    if (one != nullptr) scale = std::max(scale, one->numel() == 1 ? gemm::Scale::kTensor : gemm::Scale::kRow);
  }
  return scale;
}

Result<void> check_memory_of(std::string_view who, const ScaledMatmulReduceScatterArgs& args,
                             const Named& output) {
  for (int j = 0; j < static_cast<int>(args.a.size()); ++j) {
    const auto idx = static_cast<std::size_t>(j);
    const Named inputs[] = {{"a", j, &args.a[idx]},
                            {"b", j, &args.b[idx]},
                            {"a_scale", j, at(args.a_scale, j)},
                            {"b_scale", j, at(args.b_scale, j)},
                            {"bias", j, at(args.bias, j)},
                            {"result_scale", j, at(args.result_scale, j)}};
    for (const Named& input : inputs) {
      if (input.view != nullptr) TANDEM_TRY(check_apart(who, output, input));
    }
  }
  return {};
}

/// Ranks share the rows of a matrix, whatever the shape: so its scales must be seen as one column.
Result<void> check_flat_scales(const ScaledMatmulReduceScatterArgs& args) {
  for (int j = 0; j < static_cast<int>(args.a.size()); ++j) {
    const TensorView* const scale = at(args.a_scale, j);
    if (scale == nullptr || scale->numel() == 1 || scale->can_flatten_rows()) continue;
    return failf(ErrorCode::kInvalidArgument, "{}: a_scale[{}] is {}, need strides as those of [rows, 1]",
                 kAllReduce, j, to_string(*scale));
  }
  return {};
}

Result<ScatterProblem> checked_problem(std::string_view who, const ScaledMatmulReduceScatterArgs& args,
                                       bool gives_all, const Group& group, const Stream& stream) {
  const Device& device = stream.device();
  TANDEM_ASSIGN(const Dims sizes, product_sizes(who, products_of(args)));
  TANDEM_TRY(check_planned(who, "plan_k", args.plan_k));
  TANDEM_TRY(check_lengths(who, args));
  const Layout out =
      gives_all ? whole_layout(sizes) : shard_layout(sizes, args.scatter_dim, group.size(), group.rank());
  TANDEM_TRY(check_outputs(who, args, sizes, out, device));
  TANDEM_TRY(check_reduction(who, args.reduce_op, args.partials, args.out.dtype));
  for (int j = 0; j < static_cast<int>(args.a.size()); ++j)
    TANDEM_TRY(check_product(who, args, j, sizes.back(), device));
  TANDEM_TRY(check_outputs_apart(who, args.out, args.product,
                                 [&](const Named& output) { return check_memory_of(who, args, output); }));

  ScatterProblem problem = scatter_problem_of(args, sizes, gives_all, group, device);
  problem.is_scaled = true;
  problem.a_scale = scale_of_a(args);
  problem.fast_accum = args.fast_accum;
  return problem;
}

}  // namespace

Result<CheckedScatter> check(const ScaledMatmulReduceScatterArgs& args, const Group& group,
                             const Stream& stream) {
  TANDEM_ASSIGN(ScatterProblem problem, checked_problem(kScatter, args, false, group, stream));
  const ScatterCall call = ScatterCall::of(args);
  ask_native(call, stream.device(), problem);
  return CheckedScatter{call, problem};
}

/// Products of views with more dims need no copy where their own dim is scattered; rows of all dims do.
Result<CheckedScatter> check(const ScaledMatmulAllReduceArgs& args, const Group& group,
                             const Stream& stream) {
  const ScaledMatmulReduceScatterArgs scatter = scatter_of(args);
  TANDEM_ASSIGN(ScatterProblem problem, checked_problem(kAllReduce, scatter, true, group, stream));
  TANDEM_TRY(check_flat_scales(scatter));
  add_copies(args.a, 0, problem);
  const ScatterCall call = ScatterCall::of(args);
  ask_native(call, stream.device(), problem);
  return CheckedScatter{call, problem};
}

}  // namespace fused
}  // namespace tandem
