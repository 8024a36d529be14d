#pragma once

#include <tandem/base/error.hpp>

#include "gemm/row_quantization.hpp"

namespace tandem::gemm::cpu {

/// On the calling thread.
[[nodiscard]] Result<void> run(const RowQuantization& rows);

}  // namespace tandem::gemm::cpu
