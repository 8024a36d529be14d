#include <tandem/base/shard.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "gemm/operand_checks.hpp"

namespace tandem::gemm {
namespace {

constexpr std::string_view kWho = "matmul_reduce_scatter";

Result<void> check_out(const ProductArgs& args, std::int64_t m, std::int64_t n) {
  const Departure& departure = *args.departure;
  const Dims own = {departure.gives_all ? m : shard_of(m, departure.world, departure.rank).size, n};
  if (!(args.out->sizes == own) || !args.out->is_contiguous()) {
    return failf(ErrorCode::kInvalidArgument, "{}: out is {}, need {}, contiguous", kWho,
                 to_string(*args.out), to_string(own));
  }
  const TensorView* const kept = args.departure->product;
  const Dims all = {m, n};
  if (kept != nullptr &&
      (!(kept->sizes == all) || !kept->is_contiguous() || kept->dtype != args.out->dtype)) {
    return failf(ErrorCode::kInvalidArgument, "{}: product is {}, need {} {}, contiguous", kWho,
                 to_string(*kept), to_string(args.out->dtype), to_string(all));
  }
  const TensorView* const bias = departure.bias;
  if (bias != nullptr && (!(bias->sizes == Dims{n}) || bias->dtype != args.out->dtype)) {
    return failf(ErrorCode::kInvalidArgument, "{}: bias is {}, need {} [{}]", kWho, to_string(*bias),
                 to_string(args.out->dtype), n);
  }
  return {};
}

Result<void> check_factors(const ProductArgs& args) {
  if (args.a->dim() != 2 || !args.a->is_contiguous()) {
    return failf(ErrorCode::kInvalidArgument, "{}: a is {}, need a contiguous matrix", kWho,
                 to_string(*args.a));
  }
  if (args.b != nullptr && (args.b->dim() != 2 || args.b->size(0) != args.a->size(1))) {
    return failf(ErrorCode::kInvalidArgument, "{}: b is {}, need two dimensions, the first of {}", kWho,
                 to_string(*args.b), args.a->size(1));
  }
  return {};
}

}  // namespace

Result<Product> departing_product(const ProductArgs& args) {
  TANDEM_TRY(check_factors(args));
  const bool is_made = args.b == nullptr;
  const std::int64_t m = args.a->size(0);
  const std::int64_t n = is_made ? args.a->size(1) : args.b->size(1);
  TANDEM_TRY(check_out(args, m, n));
  ProductArgs known = args;
  if (is_made) known.b = args.a;
  Product product = product_of(known);
  product.n = n;
  if (is_made) product.k = 0;
  product.b_is_column_major = !is_made && !args.b->is_contiguous();
  const auto is_aligned = [](const TensorView& view) { return is_aligned_async_input(view); };
  product.is_aligned = is_aligned(*args.a) && is_aligned(*args.out) &&
                       (is_made || (is_aligned(*args.b) && has_no_holes(*args.b))) &&
                       (args.departure->product == nullptr || is_aligned(*args.departure->product));
  product.owners = Owners{.count = args.departure->world,
                          .rank = args.departure->rank,
                          .own_all = args.departure->gives_all,
                          .is_made = is_made};
  return product;
}

}  // namespace tandem::gemm
