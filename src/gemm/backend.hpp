#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/device/stream.hpp>

#include "cost/machine.hpp"
#include "gemm/packed_operand.hpp"
#include "gemm/product.hpp"

namespace tandem::gemm {

/// One way to compute products. Lives as long as its Backend.
class Implementation {
 public:
  virtual ~Implementation() = default;
  /// "cpu/tile_avx512".
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Whether it can run the product; if not, the reason goes to `why_not` unless that is null. Asked in every
  /// call of mm(), so the refusal itself must not allocate.
  [[nodiscard]] virtual bool accepts(const Product& product, std::string* why_not) const = 0;
  /// Makes what run() would make at its first call: see gemm::prepare(). Addresses of `like` may be null. By
  /// default there is nothing.
  [[nodiscard]] virtual Result<void> prepare(const Product& /*product*/, const ProductArgs& /*like*/,
                                             Stream& /*stream*/) const {
    return {};
  }
  /// Enqueues. `args` are checked and of `product`, which was accepted and is not empty.
  [[nodiscard]] virtual Result<void> run(const Product& product, const ProductArgs& args,
                                         Stream& stream) const = 0;
  /// See gemm::pack_b(); of a b whose products it accepts. By default there is nothing to gain.
  [[nodiscard]] virtual Result<std::shared_ptr<const PackedOperand>> pack(const TensorView& /*b*/) const {
    return fail(ErrorCode::kUnsupported,
                "pack_b: " + std::string(name()) + " reads b as it is; call mm() with it");
  }
  /// See gemm::predicted_us(); of products that were accepted. By default there is no model.
  [[nodiscard]] virtual std::optional<double> predicted_us(const Product& /*product*/,
                                                           const cost::GpuRates& /*gpu*/) const {
    return std::nullopt;
  }
};

/// Writes the reason of a refusal, unless nobody asks for it.
inline bool refuse(std::string* why_not, std::string_view reason) {
  if (why_not != nullptr) *why_not = reason;
  return false;
}

/// For implementations whose products leave all rows where they are made.
inline bool refuse_owners(std::string* why_not) {
  return refuse(why_not, "gives no rows to their owners");
}

/// For implementations that have no products by 4-bit weights.
[[nodiscard]] inline bool has_wide_weight(const Product& product, std::string* why_not) {
  return product.b_scale != Scale::kGroup || refuse(why_not, "has no products by 4-bit weights");
}

/// For implementations of mm() and scaled_matmul().
[[nodiscard]] inline bool is_there(const Product& product, std::string* why_not) {
  if (product.owners) return refuse_owners(why_not);
  if (product.tells) return refuse(why_not, "tells nobody of its rows");
  if (!has_wide_weight(product, why_not)) return false;
  return !product.arrival || refuse(why_not, "cannot take a left operand that still arrives");
}

/// For implementations that have one way only to run a product.
[[nodiscard]] inline bool has_heuristic(const Product& product, std::string* why_not) {
  return product.heuristic == 0 || refuse(why_not, "has no choice but one");
}

/// The products of one kind of device, a service of Device.
class Backend {
 public:
  virtual ~Backend() = default;
  /// Best first, reference last. The first that accepts a product runs it.
  [[nodiscard]] virtual std::span<const Implementation* const> implementations() const = 0;
};

}  // namespace tandem::gemm
