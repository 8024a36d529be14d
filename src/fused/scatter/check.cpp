#include "base/format.hpp"
#include "base/try.hpp"
#include "fused/scatter/arguments.hpp"
#include "fused/scatter/call.hpp"
#include "fused/scatter/native.hpp"

namespace tandem {
namespace {

constexpr std::string_view kScatter = "fused_matmul_reduce_scatter";
constexpr std::string_view kAllReduce = "fused_matmul_all_reduce";

/// An all-reduce is the scatter of its rows, whose sums go to all ranks.
MatmulReduceScatterArgs scatter_of(const MatmulAllReduceArgs& args) {
  return {.a = args.a,
          .b = args.b,
          .reduce_op = args.reduce_op,
          .out = args.out,
          .bias = args.bias,
          .product = args.product,
          .partials = args.partials,
          .algorithm = args.algorithm,
          .plan_k = args.plan_k};
}

}  // namespace

Result<Layout> output_layout(const MatmulReduceScatterArgs& args, int world, int rank) {
  return fused::output_layout(kScatter, fused::products_of(args), world, rank);
}

Result<Layout> output_layout(const MatmulAllReduceArgs& args) {
  return fused::product_sizes(kAllReduce, fused::products_of(scatter_of(args))).map(fused::whole_layout);
}

namespace fused {
namespace {

Result<void> check_products(std::string_view who, const MatmulReduceScatterArgs& args, const Device& device) {
  for (int j = 0; j < static_cast<int>(args.a.size()); ++j) {
    const auto idx = static_cast<std::size_t>(j);
    TANDEM_TRY(check_operand(who, {"a", j, &args.a[idx]}, args.out.dtype, device));
    TANDEM_TRY(check_operand(who, {"b", j, &args.b[idx]}, args.out.dtype, device));
  }
  return {};
}

Result<void> check_options(std::string_view who, const MatmulReduceScatterArgs& args, const Dims& sizes,
                           const Device& device) {
  const DType dtype = args.out.dtype;
  TANDEM_TRY(check_reduction(who, args.reduce_op, args.partials, dtype));
  if (args.bias) {
    TANDEM_TRY(check_operand(who, {"bias", -1, &*args.bias}, dtype, device));
    if (!(args.bias->sizes == Dims{sizes.back()})) {
      return failf(ErrorCode::kInvalidArgument,
                   "{}: bias has sizes {}, need {}: all columns, also where they are scattered", who,
                   to_string(args.bias->sizes), to_string(Dims{sizes.back()}));
    }
  }
  if (args.product) {
    TANDEM_TRY(check_layout(who, {"product", -1, &*args.product}, {sizes, contiguous_strides(sizes)}, dtype,
                            device));
  }
  return {};
}

Result<void> check_memory_of(std::string_view who, const MatmulReduceScatterArgs& args, const Named& output) {
  for (int j = 0; j < static_cast<int>(args.a.size()); ++j) {
    const auto idx = static_cast<std::size_t>(j);
    TANDEM_TRY(check_apart(who, output, {"a", j, &args.a[idx]}));
    TANDEM_TRY(check_apart(who, output, {"b", j, &args.b[idx]}));
  }
  if (args.bias) TANDEM_TRY(check_apart(who, output, {"bias", -1, &*args.bias}));
  return {};
}

Result<ScatterProblem> checked_problem(std::string_view who, const MatmulReduceScatterArgs& args,
                                       bool gives_all, const Group& group, const Stream& stream) {
  const Device& device = stream.device();
  TANDEM_ASSIGN(const Dims sizes, product_sizes(who, products_of(args)));
  TANDEM_TRY(check_planned(who, "plan_k", args.plan_k));
  const Layout out =
      gives_all ? whole_layout(sizes) : shard_layout(sizes, args.scatter_dim, group.size(), group.rank());
  TANDEM_TRY(check_layout(who, {"out", -1, &args.out}, out, args.a.front().dtype, device));
  TANDEM_TRY(check_products(who, args, device));
  TANDEM_TRY(check_options(who, args, sizes, device));
  TANDEM_TRY(check_outputs_apart(who, args.out, args.product,
                                 [&](const Named& output) { return check_memory_of(who, args, output); }));

  ScatterProblem problem = scatter_problem_of(args, sizes, gives_all, group, device);
  problem.has_bias = args.bias.has_value();
  add_copies(args.a, args.scatter_dim, problem);
  return problem;
}

}  // namespace

Result<CheckedScatter> check(const MatmulReduceScatterArgs& args, const Group& group, const Stream& stream) {
  TANDEM_ASSIGN(ScatterProblem problem, checked_problem(kScatter, args, false, group, stream));
  ScatterCall call = ScatterCall::of(args);
  ask_native(call, stream.device(), problem);
  return CheckedScatter{std::move(call), problem};
}

Result<CheckedScatter> check(const MatmulAllReduceArgs& args, const Group& group, const Stream& stream) {
  TANDEM_ASSIGN(ScatterProblem problem, checked_problem(kAllReduce, scatter_of(args), true, group, stream));
  ScatterCall call = ScatterCall::of(args);
  ask_native(call, stream.device(), problem);
  return CheckedScatter{std::move(call), problem};
}

}  // namespace fused
}  // namespace tandem
