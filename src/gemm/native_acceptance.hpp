#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tandem/base/support.hpp>

#include "gemm/native_model.hpp"
#include "gemm/product.hpp"

namespace tandem::gemm {

// Which products the native kernels take. It needs no GPU: a planner asks too.

[[nodiscard]] inline std::int64_t row_bytes_of(const Product& product) {
  return product.k * size_bytes(product.a);
}

/// Whether all of a is there, and all rows stay.
[[nodiscard]] inline bool is_there(const Product& product) {
  return !product.arrival && !product.owners;
}

/// The native products of a device.
struct NativeProducts {
  const KernelChoice& kernels;
  bool batch_invariant;   ///< Config::batch_invariant of the device
  const Support& usable;  ///< whether the device can run the kernels
};
/// A product whose a is there, as the kernels know it: one chunk that has come. Where operands are packed b
/// comes in an order of which there is a kernel, its own one if it can be.
[[nodiscard]] Product as_arrived(const Product& product, const KernelChoice& kernels, bool batch_invariant);
/// As Implementation::accepts().
[[nodiscard]] bool accepts_natively(const Product& product, const NativeProducts& products,
                                    std::string* why_not);

/// As Implementation::predicted_us().
[[nodiscard]] std::optional<double> native_product_us(const Product& product, const KernelChoice& kernels,
                                                      bool batch_invariant, const cost::GpuRates& gpu);

}  // namespace tandem::gemm
