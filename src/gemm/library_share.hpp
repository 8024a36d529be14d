#pragma once

#include <optional>
#include <string_view>

#include "cost/machine.hpp"
#include "gemm/product.hpp"

namespace tandem::gemm {

/// What of a product cuBLASLt computes. One pass over its f32 sums does the rest.
struct LibraryShare {
  Scale a_scale = Scale::kNone;  ///< kNone: there is none, or the pass applies it
  Scale b_scale = Scale::kNone;
  bool rounds = true;  ///< the library makes out, and there is no pass; else it makes f32 sums
};

/// Best first. The library may have no algorithm for the first.
struct LibraryShares {
  LibraryShare shares[2];
  int count = 0;
  [[nodiscard]] const LibraryShare* begin() const { return shares; }
  [[nodiscard]] const LibraryShare* end() const { return shares + count; }
};
/// Of a product that the library does not refuse.
[[nodiscard]] LibraryShares library_shares_of(const Product& product);

/// Why cuBLASLt computes no share of the product; empty where it does.
[[nodiscard]] std::string_view library_refusal(const Product& product);

/// What cuBLASLt takes for it, as gemm::predicted_us() says.
[[nodiscard]] std::optional<double> library_us(const Product& product, const cost::GpuRates& gpu);

}  // namespace tandem::gemm
