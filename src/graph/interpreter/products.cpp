#include "graph/interpreter/products.hpp"

#include <algorithm>
#include <tandem/base/convert.hpp>
#include <tandem/gemm/mm.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "base/with_last.hpp"
#include "graph/interpreter/ops.hpp"
#include "graph/ir/ops.hpp"

namespace tandem::graph::interpreter {
namespace {

/// Also where the last dim is empty.
std::int64_t rows_of(const Dims& sizes) {
  return numel(with_last(sizes, 1));
}

/// [..., k] as [rows, k]. The products of the library take no f8 here: those are exact in f32.
HostTensor as_matrix(const HostTensor& x) {
  const HostTensor flat = x.with_sizes({rows_of(x.sizes()), x.sizes().back()});
  return is_f8(x.dtype()) ? HostTensor::copy_of(flat.view(), DType::kF32) : flat;
}

Result<void> multiply(const gemm::MmArgs& args, Stream& stream) {
  TANDEM_TRY(gemm::mm(args, stream));
  return stream.synchronize();
}

Result<Dims> sizes_of(const Product& product) {
  const Dims& a = product.a.sizes();
  const Dims& b = product.b.sizes();
  if (a.size() < 2 || b.size() != 2 || a.back() != b[0]) {
    return failf(ErrorCode::kInvalidArgument, "multiplies {} by {}", to_string(a), to_string(b));
  }
  return with_last(a, b[1]);
}

/// values[i] = use(values[i], factor[i]), `factor` broadcast to `sizes`.
template <class Use>
Result<void> apply(const std::optional<HostTensor>& factor, const Dims& sizes, std::vector<float>& values,
                   const Use& use) {
  if (!factor) return {};
  // One element may have more dims than the product.
  const HostTensor scalar_or_more = factor->numel() == 1 ? factor->with_sizes({}) : *factor;
  TANDEM_ASSIGN(const Dims wide, broadcast_sizes(scalar_or_more.sizes(), sizes));
  if (!(wide == sizes)) {
    return failf(ErrorCode::kInvalidArgument, "a scale or bias has sizes {}, for a product of {}",
                 to_string(factor->sizes()), to_string(sizes));
  }
  const auto factors = elements<float>(broadcast(scalar_or_more.view(), sizes));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = use(values[i], factors[i]);
  return {};
}

/// One product with all that _scaled_mm does to it, in f32.
Result<std::vector<float>> exact_product(const Product& product, Stream& stream) {
  TANDEM_ASSIGN(const Dims sizes, sizes_of(product));
  const HostTensor a = as_matrix(product.a);
  const HostTensor b = as_matrix(product.b);
  HostTensor sum({a.sizes()[0], b.sizes()[1]}, DType::kF32);
  TANDEM_TRY(multiply({.a = a.view(), .b = b.view(), .out = sum.view(), .bias = {}}, stream));
  std::vector<float> values = elements<float>(sum.view());
  TANDEM_TRY(apply(product.a_scale, sizes, values, std::multiplies<>()));
  TANDEM_TRY(apply(product.b_scale, sizes, values, std::multiplies<>()));
  TANDEM_TRY(apply(product.bias, sizes, values, std::plus<>()));
  TANDEM_TRY(apply(product.result_scale, sizes, values, std::multiplies<>()));
  return values;
}

bool is_plain(const Product& product) {
  return !product.a_scale && !product.b_scale && !product.bias && !product.result_scale;
}

Result<Values> mm(const Call& call) {
  TANDEM_ASSIGN(HostTensor a, call.tensor(0));
  TANDEM_ASSIGN(HostTensor b, call.tensor(1));
  const DType dtype = a.dtype();
  const Product product{std::move(a), std::move(b)};
  TANDEM_ASSIGN(HostTensor out, sum_of_products(std::span(&product, 1), dtype, call.ranks().stream));
  return one(std::move(out));
}

/// In f32.
HostTensor multiplied(const HostTensor& x, double number) {
  std::vector<double> values = elements<double>(x.view());
  for (double& value : values) value *= number;
  return HostTensor::from(std::span<const double>(values), x.sizes(), DType::kF32);
}

Result<Values> addmm(const Call& call) {
  TANDEM_ASSIGN(HostTensor bias, call.tensor(0));
  TANDEM_ASSIGN(HostTensor a, call.tensor(1));
  TANDEM_ASSIGN(HostTensor b, call.tensor(2));
  TANDEM_ASSIGN(const double alpha, call.number_or(call.named("alpha"), 1));
  TANDEM_ASSIGN(const double beta, call.number_or(call.named("beta"), 1));
  const DType dtype = a.dtype();
  Product product{.a = std::move(a), .b = std::move(b)};
  if (alpha != 1) product.a_scale = HostTensor::from(std::span<const double>(&alpha, 1), {}, DType::kF32);
  product.bias = beta == 1 ? std::move(bias) : multiplied(bias, beta);
  TANDEM_ASSIGN(HostTensor out, sum_of_products(std::span(&product, 1), dtype, call.ranks().stream));
  return one(std::move(out));
}

/// Products of matrices one by one: [batch, m, k] and [batch, k, n].
Result<HostTensor> batched(const HostTensor& a, const HostTensor& b, const std::optional<HostTensor>& bias,
                           Stream& stream) {
  const bool fits = a.sizes().size() == 3 && b.sizes().size() == 3 && a.sizes()[0] == b.sizes()[0] &&
                    a.sizes()[2] == b.sizes()[1];
  if (!fits) {
    return failf(ErrorCode::kInvalidArgument, "multiplies {} by {}, matrix by matrix", to_string(a.sizes()),
                 to_string(b.sizes()));
  }
  const Dims sizes{a.sizes()[0], a.sizes()[1], b.sizes()[2]};
  const auto matrix = [](const HostTensor& x, std::int64_t i) {
    const HostTensor part = HostTensor::copy_of(x.view().narrow(0, i, 1), x.dtype());
    return part.with_sizes({x.sizes()[1], x.sizes()[2]});
  };
  HostTensor out(sizes, a.dtype());
  for (std::int64_t i = 0; i < sizes[0]; ++i) {
    Product product{matrix(a, i), matrix(b, i)};
    if (bias) product.bias = matrix(*bias, i);
    TANDEM_ASSIGN(const HostTensor one, sum_of_products(std::span(&product, 1), a.dtype(), stream));
    TANDEM_TRY(convert(one.with_sizes({1, sizes[1], sizes[2]}).view(), out.view().narrow(0, i, 1)));
  }
  return out;
}

Result<Values> bmm(const Call& call) {
  TANDEM_ASSIGN(const HostTensor a, call.tensor(0));
  TANDEM_ASSIGN(const HostTensor b, call.tensor(1));
  TANDEM_ASSIGN(HostTensor out, batched(a, b, {}, call.ranks().stream));
  return one(std::move(out));
}

// (bias, a, b)
Result<Values> baddbmm(const Call& call) {
  TANDEM_ASSIGN(const HostTensor bias, call.tensor(0));
  TANDEM_ASSIGN(const HostTensor a, call.tensor(1));
  TANDEM_ASSIGN(const HostTensor b, call.tensor(2));
  TANDEM_TRY(call.named_is("alpha", 1));
  TANDEM_TRY(call.named_is("beta", 1));
  if (a.sizes().size() != 3 || b.sizes().size() != 3) {
    return failf(ErrorCode::kInvalidArgument, "multiplies {} by {}, matrix by matrix", to_string(a.sizes()),
                 to_string(b.sizes()));
  }
  const Dims sizes{a.sizes()[0], a.sizes()[1], b.sizes()[2]};
  TANDEM_ASSIGN(const Dims wide, broadcast_sizes(bias.sizes(), sizes));
  if (!(wide == sizes)) {
    return failf(ErrorCode::kInvalidArgument, "adds a bias of {} to {}", to_string(bias.sizes()),
                 to_string(sizes));
  }
  const HostTensor whole = HostTensor::copy_of(broadcast(bias.view(), sizes), bias.dtype());
  TANDEM_ASSIGN(HostTensor out, batched(a, b, whole, call.ranks().stream));
  return one(std::move(out));
}

Result<Values> scaled_mm(const Call& call) {
  TANDEM_ASSIGN(HostTensor a, call.tensor(0));
  TANDEM_ASSIGN(HostTensor b, call.tensor(1));
  TANDEM_ASSIGN(HostTensor a_scale, call.tensor(2));
  TANDEM_ASSIGN(HostTensor b_scale, call.tensor(3));
  TANDEM_ASSIGN(auto bias, call.optional_tensor(4));
  TANDEM_ASSIGN(auto result_scale, call.optional_tensor(5));
  TANDEM_ASSIGN(const DType dtype, call.dtype_or(call.argument(6), a.dtype()));
  const Product product{std::move(a),       std::move(b),    std::move(a_scale),
                        std::move(b_scale), std::move(bias), std::move(result_scale)};
  TANDEM_ASSIGN(HostTensor out, sum_of_products(std::span(&product, 1), dtype, call.ranks().stream));
  return one(std::move(out));
}

/// From the arguments scales, recipes and swizzles, of which `first` is the first: PyTorch's recipe 0 is one
/// scale for the whole operand, and 1 one for each row of a, or column of b.
Result<HostTensor> scale_by_recipe(const Call& call, std::size_t first, const Dims& by_rows) {
  TANDEM_ASSIGN(const auto scales, call.tensors(first));
  TANDEM_ASSIGN(const auto recipes, call.integers(first + 1));
  TANDEM_ASSIGN(const auto swizzles, call.integers(first + 2));
  const bool is_known =
      scales.size() == 1 && recipes.size() == 1 && (recipes[0] == 0 || recipes[0] == 1) &&
      std::all_of(swizzles.begin(), swizzles.end(), [](std::int64_t kind) { return kind == 0; });
  if (!is_known) {
    return failf(
        ErrorCode::kUnsupported,
        "scales by recipes [{}] and swizzles [{}], only 0 (tensor-wise) and 1 (row-wise) can be executed",
        fmt::join(recipes, ", "), fmt::join(swizzles, ", "));
  }
  const Dims need = recipes[0] == 0 ? Dims() : by_rows;
  if (scales[0].numel() != numel(need)) {
    return failf(ErrorCode::kInvalidArgument, "scales {} by recipe {}, need {} of them",
                 to_string(scales[0].sizes()), recipes[0], numel(need));
  }
  return scales[0].with_sizes(need);
}

// (a, b, a scales, recipes, swizzles, b scales, recipes, swizzles, bias, dtype, contracted dims, fast)
Result<Values> scaled_mm_by_recipe(const Call& call) {
  TANDEM_ASSIGN(HostTensor a, call.tensor(0));
  TANDEM_ASSIGN(HostTensor b, call.tensor(1));
  TANDEM_ASSIGN(const auto dims,
                call.argument(10) == nullptr ? Result<std::vector<std::int64_t>>() : call.integers(10));
  if (a.sizes().size() != 2 || b.sizes().size() != 2 || !dims.empty()) {
    return failf(ErrorCode::kUnsupported, "multiplies {} by {} over dims [{}], need matrices and no dims",
                 to_string(a.sizes()), to_string(b.sizes()), fmt::join(dims, ", "));
  }
  TANDEM_ASSIGN(HostTensor a_scale, scale_by_recipe(call, 2, {a.sizes()[0], 1}));
  TANDEM_ASSIGN(HostTensor b_scale, scale_by_recipe(call, 5, {1, b.sizes()[1]}));
  TANDEM_ASSIGN(auto bias, call.optional_tensor(8));
  TANDEM_ASSIGN(const DType dtype, call.dtype_or(call.argument(9), a.dtype()));
  const Product product{std::move(a), std::move(b), std::move(a_scale), std::move(b_scale), std::move(bias)};
  TANDEM_ASSIGN(HostTensor out, sum_of_products(std::span(&product, 1), dtype, call.ranks().stream));
  return one(std::move(out));
}

constexpr Op kOps[] = {
    {graph::op::kScaledMmByRecipe, scaled_mm_by_recipe},
    {graph::op::kScaledMm, scaled_mm},
    {graph::op::kAddmm, addmm},
    {"aten.baddbmm.default", baddbmm},
    {"aten.bmm.default", bmm},
    {graph::op::kMm, mm},
};

}  // namespace

Result<HostTensor> sum_of_products(std::span<const Product> products, DType dtype, Stream& stream) {
  TANDEM_ASSIGN(const Dims sizes, sizes_of(products.front()));
  HostTensor sum({rows_of(sizes), sizes.back()}, DType::kF32);
  for (std::size_t j = 0; j < products.size(); ++j) {
    const Product& product = products[j];
    TANDEM_ASSIGN(const Dims own, sizes_of(product));
    if (!(own == sizes)) {
      return failf(ErrorCode::kInvalidArgument, "adds products of {} and {}", to_string(sizes),
                   to_string(own));
    }
    if (is_plain(product)) {  // goes on with the sum, as the library's accumulating products do
      const HostTensor a = as_matrix(product.a);
      const HostTensor b = as_matrix(product.b);
      TANDEM_TRY(multiply({.a = a.view(), .b = b.view(), .out = sum.view(), .bias = {}, .accumulate = j > 0},
                          stream));
      continue;
    }
    TANDEM_ASSIGN(const auto values, exact_product(product, stream));
    float* const total = sum.view().data_as<float>();
    for (std::size_t i = 0; i < values.size(); ++i) total[i] += values[i];
  }
  return HostTensor::copy_of(sum.with_sizes(sizes).view(), dtype);
}

std::span<const Op> product_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
