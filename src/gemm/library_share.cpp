#include "gemm/library_share.hpp"

#include "cost/products.hpp"

namespace tandem::gemm {
namespace {

bool is_one_number(Scale scale) {
  return scale == Scale::kNone || scale == Scale::kTensor;
}

/// Of f8 factors.
bool library_scales(const Product& product) {
  if (product.is_scaled_along_k()) return product.a_scale == Scale::kVector128 && is_along_k(product.b_scale);
  return (is_one_number(product.a_scale) && is_one_number(product.b_scale)) ||
         (product.a_scale == Scale::kRow && product.b_scale == Scale::kColumn);
}

/// Whether the library has all that the product needs. It adds a bias to what it has rounded, which would
/// round twice. So it does with an addend of out's type for some sizes: MmArgs allows that.
bool library_finishes(const Product& product) {
  if (product.epilogue.bias || product.epilogue.result_scale) return false;
  if (product.epilogue.addend && *product.epilogue.addend != product.out) return false;
  if (is_f8(product.a)) return library_scales(product) && !is_f8(product.out);
  const bool is_scaled = product.a_scale != Scale::kNone || product.b_scale != Scale::kNone;
  return !is_scaled && (product.out == product.a || product.out == DType::kF32);
}

}  // namespace

LibraryShares library_shares_of(const Product& product) {
  LibraryShares all;
  const LibraryShare whole{.a_scale = product.a_scale, .b_scale = product.b_scale};
  if (library_finishes(product)) all.shares[all.count++] = whole;
  const bool may_lack_a_type = all.count == 1 && is_f8(product.a);
  if (all.count == 1 && !may_lack_a_type) return all;
  all.shares[all.count++] = product.is_scaled_along_k()
                                ? LibraryShare{product.a_scale, product.b_scale, false}
                                : LibraryShare{Scale::kNone, Scale::kNone, false};
  return all;
}

std::string_view library_refusal(const Product& product) {
  if (product.m == 0 || product.n == 0 || product.k == 0) return "cuBLASLt takes no empty matrices";
  if (!is_f8(product.a))
    return product.is_scaled_along_k() ? "cuBLASLt scales along k in products of f8 only" : "";
  if (product.a == DType::kF8E5M2 && product.b == DType::kF8E5M2)
    return "cuBLASLt multiplies no f8e5m2 by f8e5m2";
  if (product.k % 16 != 0 || product.n % 8 != 0)
    return "cuBLASLt multiplies f8 where k is a multiple of 16 and n one of 8";
  if (product.is_scaled_along_k() && !library_scales(product))
    return "cuBLASLt scales f8 along k by the scales of both factors only";
  return "";
}

std::optional<double> library_us(const Product& product, const cost::GpuRates& gpu) {
  const std::int64_t element_bytes = size_bytes(product.a);
  if (element_bytes > 2 || product.is_scaled_along_k()) return std::nullopt;
  return cost::vendor_us(product.m, product.n, product.k, element_bytes, gpu);
}

}  // namespace tandem::gemm
