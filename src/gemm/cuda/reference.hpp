#pragma once

#include "gemm/backend.hpp"

namespace tandem::gemm::cuda {

/// The plain kernels of reference_kernel.hpp and scaled_reference_kernel.hpp: everything that mm() and
/// scaled_matmul() take, every stride, and slow.
class Reference final : public Implementation {
 public:
  [[nodiscard]] std::string_view name() const override { return "cuda/reference"; }
  [[nodiscard]] bool accepts(const Product& product, std::string* why_not) const override {
    return is_there(product, why_not) && has_heuristic(product, why_not);
  }
  [[nodiscard]] Result<void> run(const Product& product, const ProductArgs& args,
                                 Stream& stream) const override;
};

}  // namespace tandem::gemm::cuda
