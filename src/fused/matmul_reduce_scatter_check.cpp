#include "fused/matmul_reduce_scatter_check.hpp"

#include "base/format.hpp"
#include "base/try.hpp"
#include "fused/argument_checks.hpp"
#include "fused/hash.hpp"

namespace tandem {
namespace {

constexpr std::string_view kWho = "fused_matmul_reduce_scatter";

/// Sizes of the product before the scatter: a's with b's columns.
Result<Dims> product_sizes(const MatmulReduceScatterArgs& args) {
  if (args.a.empty() || args.a.size() != args.b.size()) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: got {} a's and {} b's, need one b an a, and one a at least", kWho, args.a.size(),
                 args.b.size());
  }
  const TensorView& first = args.a.front();
  // One dim is left for the stack of partials.
  if (first.dim() < 2 || first.dim() >= kMaxDims) {
    return failf(ErrorCode::kInvalidArgument, "{}: a[0] has sizes {}, need a matrix [..., k] of 2 to {} dims",
                 kWho, to_string(first.sizes), kMaxDims - 1);
  }
  if (args.scatter_dim < 0 || args.scatter_dim >= first.dim()) {
    return failf(ErrorCode::kInvalidArgument, "{}: scatter_dim is {}, need 0 to {} for a of sizes {}", kWho,
                 args.scatter_dim, first.dim() - 1, to_string(first.sizes));
  }
  if (args.b.front().dim() != 2) {
    return failf(ErrorCode::kInvalidArgument, "{}: b[0] has sizes {}, need [{}, n]", kWho,
                 to_string(args.b.front().sizes), first.sizes.back());
  }
  Dims sizes = first.sizes;
  sizes[sizes.size() - 1] = args.b.front().size(1);
  for (std::size_t j = 0; j < args.a.size(); ++j) {
    const Dims& a = args.a[j].sizes;
    Dims need = sizes;
    if (a.size() == need.size()) need[need.size() - 1] = a.back();
    if (!(a == need)) {
      return failf(ErrorCode::kInvalidArgument, "{}: a[{}] has sizes {}, need those of a[0] but the last: {}",
                   kWho, j, to_string(a), to_string(first.sizes));
    }
    if (!(args.b[j].sizes == Dims{a.back(), sizes.back()})) {
      return failf(ErrorCode::kInvalidArgument, "{}: b[{}] has sizes {}, need {}", kWho, j,
                   to_string(args.b[j].sizes), to_string(Dims{a.back(), sizes.back()}));
    }
  }
  if (!fused::is_representable(sizes, DType::kF32)) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: the product would have sizes {}, need sizes that are not negative "
                 "and at most 2^62 bytes",
                 kWho, to_string(sizes));
  }
  return sizes;
}

Layout shard_layout(Dims sizes, int dim, int world, int rank) {
  sizes[dim] = shard_of(sizes[dim], world, rank).size;
  return {sizes, contiguous_strides(sizes)};
}

}  // namespace

Result<Layout> output_layout(const MatmulReduceScatterArgs& args, int world, int rank) {
  if (world < 1 || rank < 0 || rank >= world) {
    return failf(ErrorCode::kInvalidArgument, "{}: rank {} of {} does not exist", kWho, rank, world);
  }
  TANDEM_ASSIGN(const Dims sizes, product_sizes(args));
  return shard_layout(sizes, args.scatter_dim, world, rank);
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
  if (args.reduce_op != coll::ReduceOp::kSum && args.reduce_op != coll::ReduceOp::kAvg) {
    return failf(ErrorCode::kInvalidArgument, "{}: reduce_op must be sum or avg, got {}", kWho,
                 static_cast<int>(args.reduce_op));
  }
  if (args.partials && *args.partials != dtype && *args.partials != DType::kF32) {
    return failf(ErrorCode::kInvalidArgument, "{}: partials is {}, need {} as out or f32", kWho,
                 to_string(*args.partials), to_string(dtype));
  }
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
    TANDEM_TRY(check_no_overlap(kWho, output, {"a", j, &args.a[idx]}));
    TANDEM_TRY(check_no_overlap(kWho, output, {"b", j, &args.b[idx]}));
  }
  if (args.bias) TANDEM_TRY(check_no_overlap(kWho, output, {"bias", -1, &*args.bias}));
  return {};
}

}  // namespace

TensorView front_of(const TensorView& a, int scatter_dim) {
  return scatter_dim == a.dim() - 1 ? a : a.movedim(scatter_dim, 0);
}

Result<ScatterProblem> check(const MatmulReduceScatterArgs& args, const Group& group, const Stream& stream) {
  const Device& device = stream.device();
  TANDEM_ASSIGN(const Dims sizes, product_sizes(args));
  const Named out{"out", -1, &args.out};
  TANDEM_TRY(check_layout(kWho, out, shard_layout(sizes, args.scatter_dim, group.size(), group.rank()),
                          args.a.front().dtype, device));
  TANDEM_TRY(check_products(args, device));
  TANDEM_TRY(check_options(args, sizes, device));
  TANDEM_TRY(check_memory_of(args, out));
  if (args.product) {
    const Named product{"product", -1, &*args.product};
    TANDEM_TRY(check_memory_of(args, product));
    TANDEM_TRY(check_no_overlap(kWho, product, out));
  }

  ScatterProblem problem{.dtype = args.out.dtype,
                         .partials = args.partials.value_or(args.out.dtype),
                         .sizes = sizes,
                         .dim = args.scatter_dim,
                         .reduce_op = args.reduce_op,
                         .world = group.size(),
                         .asked = args.algorithm,
                         .device = device.id(),
                         .num_products = static_cast<int>(args.a.size()),
                         .sum_k = 0,
                         .num_copied = 0,
                         .has_bias = args.bias.has_value()};
  for (const TensorView& a : args.a) {
    problem.sum_k += a.sizes.back();
    if (!front_of(a, args.scatter_dim).can_flatten_rows()) ++problem.num_copied;
  }
  return problem;
}

std::int64_t ScatterProblem::rows() const {
  std::int64_t product = 1;
  for (int d = 0; d < sizes.size() - 1; ++d) product *= sizes[d];
  return product;
}

std::int64_t ScatterProblem::unit_rows() const {
  std::int64_t product = scatters_last() ? 0 : 1;
  for (int d = 0; d < sizes.size() - 1; ++d) product *= d == dim ? 1 : sizes[d];
  return product;
}

std::int64_t ScatterProblem::unit_elements() const {
  return scatters_last() ? rows() : unit_rows() * n();
}

std::size_t hash_of(const ScatterProblem& p) {
  return Hash()
      .add(p.dtype)
      .add(p.partials)
      .add(p.sizes)
      .add(p.dim)
      .add(p.reduce_op)
      .add(p.asked)
      .add(p.num_products)
      .add(p.sum_k)
      .add(p.num_copied)
      .add(p.has_bias)
      .value();
}

std::string to_string(const ScatterProblem& problem) {
  return fmt::format("matmul_reduce_scatter {} {} dim {} {} w{} partials {}", to_string(problem.dtype),
                     to_string(problem.sizes), problem.dim, to_string(problem.reduce_op), problem.world,
                     to_string(problem.partials));
}

}  // namespace fused
}  // namespace tandem
