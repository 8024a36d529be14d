#pragma once

#include <string>
#include <vector>

#include "harness/operands.hpp"
#include "harness/problem.hpp"

namespace tandem::cli {

/// Tensors of a wider type as f8 with the scales that a problem asks for. A scale is the largest magnitude of
/// what it belongs to, divided by the largest number of the f8 type; 1 where all are zero. Blocks of b are of
/// gemm::kScaleBlock squared elements.
class QuantizedTensors : public harness::OperandSource {
 public:
  QuantizedTensors(const harness::Problem& problem, harness::WholeTensors tensors);
  void read(const harness::Operand& operand, const harness::Window& window,
            const TensorView& to) const override;

 private:
  /// Of a, or of one b with k last: [lines, scales of each], or one for all.
  [[nodiscard]] Tensor scales_of(const TensorView& lines, bool is_b) const;
  void quantize(const TensorView& scales, const harness::Window& window, const TensorView& lines,
                const TensorView& to) const;

  harness::Problem problem_;
  harness::WholeTensors tensors_;  ///< and their scales
  Tensor a_scales_;
  std::vector<Tensor> b_scales_;
};

}  // namespace tandem::cli
