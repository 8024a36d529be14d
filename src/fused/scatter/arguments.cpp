#include "fused/scatter/arguments.hpp"

#include <algorithm>
#include <cstdint>
#include <tandem/base/shard.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "base/with_last.hpp"

namespace tandem::fused {

Result<Dims> product_sizes(std::string_view who, const Products& products) {
  if (products.a.empty() || products.a.size() != products.b.size()) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: got {} a's and {} b's, need one b an a, and one a at least", who, products.a.size(),
                 products.b.size());
  }
  const TensorView& first = products.a.front();
  // One dim is left for the stack of partials.
  if (first.dim() < 2 || first.dim() >= kMaxDims) {
    return failf(ErrorCode::kInvalidArgument, "{}: a[0] has sizes {}, need a matrix [..., k] of 2 to {} dims",
                 who, to_string(first.sizes), kMaxDims - 1);
  }
  if (products.scatter_dim < 0 || products.scatter_dim >= first.dim()) {
    return failf(ErrorCode::kInvalidArgument, "{}: scatter_dim is {}, need 0 to {} for a of sizes {}", who,
                 products.scatter_dim, first.dim() - 1, to_string(first.sizes));
  }
  if (products.b.front().dim() != 2) {
    return failf(ErrorCode::kInvalidArgument, "{}: b[0] has sizes {}, need [{}, n]", who,
                 to_string(products.b.front().sizes), first.sizes.back());
  }
  const Dims sizes = with_last(first.sizes, products.b.front().size(1));
  for (std::size_t j = 0; j < products.a.size(); ++j) {
    const Dims& a = products.a[j].sizes;
    if (a.size() != sizes.size() || !(a == with_last(sizes, a.back()))) {
      return failf(ErrorCode::kInvalidArgument, "{}: a[{}] has sizes {}, need those of a[0] but the last: {}",
                   who, j, to_string(a), to_string(first.sizes));
    }
    if (!(products.b[j].sizes == Dims{a.back(), sizes.back()})) {
      return failf(ErrorCode::kInvalidArgument, "{}: b[{}] has sizes {}, need {}", who, j,
                   to_string(products.b[j].sizes), to_string(Dims{a.back(), sizes.back()}));
    }
  }
  if (!is_representable(sizes, DType::kF32)) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: the product would have sizes {}, need sizes that are not negative "
                 "and at most 2^62 bytes",
                 who, to_string(sizes));
  }
  return sizes;
}

Layout shard_layout(Dims sizes, int dim, int world, int rank) {
  sizes[dim] = shard_of(sizes[dim], world, rank).size;
  return {sizes, contiguous_strides(sizes)};
}

Layout whole_layout(const Dims& sizes) {
  return {sizes, contiguous_strides(sizes)};
}

Result<Layout> output_layout(std::string_view who, const Products& products, int world, int rank) {
  if (world < 1 || rank < 0 || rank >= world) {
    return failf(ErrorCode::kInvalidArgument, "{}: rank {} of {} does not exist", who, rank, world);
  }
  TANDEM_ASSIGN(const Dims sizes, product_sizes(who, products));
  return shard_layout(sizes, products.scatter_dim, world, rank);
}

Result<void> check_reduction(std::string_view who, coll::ReduceOp op, std::optional<DType> partials,
                             DType dtype) {
  if (op != coll::ReduceOp::kSum && op != coll::ReduceOp::kAvg) {
    return failf(ErrorCode::kInvalidArgument, "{}: reduce_op must be sum or avg, got {}", who,
                 static_cast<int>(op));
  }
  if (partials && *partials != dtype && *partials != DType::kF32) {
    return failf(ErrorCode::kInvalidArgument, "{}: partials is {}, need {} as out or f32", who,
                 to_string(*partials), to_string(dtype));
  }
  return {};
}

void add_copies(std::span<const TensorView> a, int scatter_dim, ScatterProblem& problem) {
  for (std::size_t j = 0; j < a.size(); ++j) {
    if (front_of(a[j], scatter_dim).can_flatten_rows()) continue;
    ++problem.num_copied;
    problem.copied |= std::uint64_t{1} << std::min<std::size_t>(j, 63);
  }
  for (std::size_t j = 0; j < a.size(); ++j) {
    if (problem.is_copied(static_cast<int>(j))) problem.copied_bytes += a[j].size_bytes();
  }
}

Result<void> check_outputs_apart(std::string_view who, const TensorView& out,
                                 const std::optional<TensorView>& product, CheckInputs check_inputs) {
  const Named named_out{"out", -1, &out};
  TANDEM_TRY(check_inputs(named_out));
  if (!product) return {};
  const Named named_product{"product", -1, &*product};
  TANDEM_TRY(check_inputs(named_product));
  return check_apart(who, named_product, named_out);
}

}  // namespace tandem::fused
