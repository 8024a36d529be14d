#pragma once

#include "gemm/backend.hpp"

namespace tandem::gemm::cuda {

/// The plain kernel of reference_kernel.hpp: every problem, every stride, and slow.
class Reference final : public Implementation {
 public:
  [[nodiscard]] std::string_view name() const override { return "cuda/reference"; }
  [[nodiscard]] bool accepts(const Problem& problem, std::string* why_not) const override {
    return has_heuristic(problem, why_not);
  }
  [[nodiscard]] Result<void> run(const Problem& problem, const MmArgs& args, Stream& stream) const override;
};

}  // namespace tandem::gemm::cuda
