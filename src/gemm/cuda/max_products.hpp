#pragma once

#include <cstddef>
#include <tandem/device/device.hpp>

namespace tandem::gemm::cuda {

/// How many products a leaf remembers on one device, least recently used. An op's plan has one for each chunk
/// size, layout and alignment, and takes those that it has prepared to be there: so more than plans.
[[nodiscard]] inline std::size_t max_products(const Device& device) {
  constexpr std::size_t kProductsOfAPlan = 16;
  return kProductsOfAPlan * static_cast<std::size_t>(device.config().max_plans);
}

}  // namespace tandem::gemm::cuda
