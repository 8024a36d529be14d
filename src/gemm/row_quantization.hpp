#pragma once

#include <cstdint>
#include <tandem/base/dtype.hpp>
#include <tandem/base/error.hpp>
#include <tandem/device/stream.hpp>

#include "gemm/row_tensor.hpp"

namespace tandem::gemm {

/// A call of quantize_rows() as a backend sees it: small enough to be captured by a task.
struct RowQuantization {
  int num_row_dims = 0;  ///< input's dims but the last, merged as far as the tensors allow; at least one
  std::int64_t row_sizes[kMaxDims - 1] = {};
  std::int64_t num_rows = 0;
  std::int64_t k = 0;
  std::int64_t block = 0;         ///< elements of k that share a scale
  std::int64_t scales_a_row = 1;  ///< blocks; the last one may be shorter
  RowTensor input;
  RowTensor out;
  RowTensor scale;  ///< its columns are blocks
  DType input_dtype = DType::kF32;
  DType out_dtype = DType::kF8E4M3;
  float largest = 0;        ///< finite number of out's type
  float smallest_amax = 0;  ///< what gives the smallest scale
};

/// Quantises rows on one kind of device, a service of Device.
class RowQuantizer {
 public:
  virtual ~RowQuantizer() = default;
  /// Enqueues. The operands are checked, and there is at least one scale.
  [[nodiscard]] virtual Result<void> run(const RowQuantization& rows, Stream& stream) const = 0;
};

}  // namespace tandem::gemm
