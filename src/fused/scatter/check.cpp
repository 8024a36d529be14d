#include <algorithm>

#include "base/format.hpp"
#include "base/try.hpp"
#include "fused/scatter/arguments.hpp"
#include "fused/scatter/call.hpp"
#include "fused/scatter/native.hpp"

namespace tandem {
namespace {

constexpr std::string_view kWho = "fused_matmul_reduce_scatter";

}  // namespace

Result<Layout> output_layout(const MatmulReduceScatterArgs& args, int world, int rank) {
  return fused::output_layout(kWho, fused::products_of(args), world, rank);
}

namespace fused {
namespace {

Result<void> check_products(const MatmulReduceScatterArgs& args, const Device& device) {
  for (int j = 0; j < static_cast<int>(args.a.size()); ++j) {
    const auto idx = static_cast<std::size_t>(j);
    TANDEM_TRY(check_operand(kWho, {"a", j, &args.a[idx]}, args.out.dtype, device));
    TANDEM_TRY(check_operand(kWho, {"b", j, &args.b[idx]}, args.out.dtype, device));
  }
  return {};
}

Result<void> check_options(const MatmulReduceScatterArgs& args, const Dims& sizes, const Device& device) {
  const DType dtype = args.out.dtype;
  TANDEM_TRY(check_reduction(kWho, args.reduce_op, args.partials, dtype));
  if (args.bias) {
    TANDEM_TRY(check_operand(kWho, {"bias", -1, &*args.bias}, dtype, device));
    if (!(args.bias->sizes == Dims{sizes.back()})) {
      return failf(ErrorCode::kInvalidArgument,
                   "{}: bias has sizes {}, need {}: all columns, also where they are "
                   "scattered",
                   kWho, to_string(args.bias->sizes), to_string(Dims{sizes.back()}));
    }
  }
  if (args.product) {
    TANDEM_TRY(check_layout(kWho, {"product", -1, &*args.product}, {sizes, contiguous_strides(sizes)}, dtype,
                            device));
  }
  return {};
}

Result<void> check_memory_of(const MatmulReduceScatterArgs& args, const Named& output) {
  for (int j = 0; j < static_cast<int>(args.a.size()); ++j) {
    const auto idx = static_cast<std::size_t>(j);
    TANDEM_TRY(check_apart(kWho, output, {"a", j, &args.a[idx]}));
    TANDEM_TRY(check_apart(kWho, output, {"b", j, &args.b[idx]}));
  }
  if (args.bias) TANDEM_TRY(check_apart(kWho, output, {"bias", -1, &*args.bias}));
  return {};
}

}  // namespace

Result<CheckedScatter> check(const MatmulReduceScatterArgs& args, const Group& group, const Stream& stream) {
  const Device& device = stream.device();
  TANDEM_ASSIGN(const Dims sizes, product_sizes(kWho, products_of(args)));
  TANDEM_TRY(check_planned(kWho, "plan_k", args.plan_k));
  TANDEM_TRY(check_layout(kWho, {"out", -1, &args.out},
                          shard_layout(sizes, args.scatter_dim, group.size(), group.rank()),
                          args.a.front().dtype, device));
  TANDEM_TRY(check_products(args, device));
  TANDEM_TRY(check_options(args, sizes, device));
  TANDEM_TRY(check_outputs_apart(kWho, args.out, args.product,
                                 [&](const Named& output) { return check_memory_of(args, output); }));

  ScatterProblem problem = scatter_problem_of(args, sizes, group, device);
  problem.has_bias = args.bias.has_value();
  for (std::size_t j = 0; j < args.a.size(); ++j) {
    const TensorView& a = args.a[j];
    if (front_of(a, args.scatter_dim).can_flatten_rows()) continue;
    ++problem.num_copied;
    problem.copied |= std::uint64_t{1} << std::min<std::size_t>(j, 63);
  }
  for (std::size_t j = 0; j < args.a.size(); ++j) {
    if (problem.is_copied(static_cast<int>(j))) problem.copied_k += args.a[j].sizes.back();
  }
  ScatterCall call = ScatterCall::of(args);
  ask_native(call, device, problem);
  return CheckedScatter{std::move(call), problem};
}

}  // namespace fused
}  // namespace tandem
