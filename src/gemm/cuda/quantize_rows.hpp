#pragma once

#include "gemm/row_quantization.hpp"

namespace tandem::gemm::cuda {

class QuantizeRows final : public RowQuantizer {
 public:
  [[nodiscard]] Result<void> run(const RowQuantization& rows, Stream& stream) const override;
};

}  // namespace tandem::gemm::cuda
