#include "quantized_tensors.hpp"

#include <algorithm>
#include <cmath>
#include <tandem/base/convert.hpp>
#include <tandem/gemm/scaled_mm.hpp>
#include <utility>

#include "failure.hpp"

namespace tandem::cli {
namespace {

using gemm::kScaleBlock;
using gemm::num_scale_blocks;
using harness::OperandKind;
using harness::Scales;

/// Of a tensor whose leading dims count as one.
std::int64_t num_lines(const TensorView& tensor) {
  std::int64_t lines = 1;
  for (int d = 0; d < tensor.dim() - 1; ++d) lines *= tensor.size(d);
  return lines;
}

TensorView line_of(TensorView tensor, std::int64_t idx) {
  std::int64_t lines = num_lines(tensor);
  while (tensor.dim() > 1) {
    lines /= tensor.size(0);
    tensor = tensor.select(0, idx / lines);
    idx %= lines;
  }
  return tensor;
}

/// Which line of the whole line `idx` of a part is.
std::int64_t line_in_whole(const TensorView& part, const Dims& whole, const harness::Window& window,
                           std::int64_t idx) {
  std::int64_t line = 0;
  std::int64_t stride = 1;
  for (int d = part.dim() - 2; d >= 0; --d) {
    line += (idx % part.size(d) + (d == window.dim ? window.shard.offset : 0)) * stride;
    stride *= whole[d];
    idx /= part.size(d);
  }
  return line;
}

float largest_of(DType dtype) {
  return dtype == DType::kF8E4M3 ? 448.0F : 57344.0F;
}

}  // namespace

QuantizedTensors::QuantizedTensors(const harness::Problem& problem, harness::WholeTensors tensors)
    : problem_(problem), tensors_(std::move(tensors)) {
  const bool is_one = problem.scales == Scales::kTensor;
  a_scales_ = scales_of(tensors_.a, false);
  tensors_.a_scale = TensorView::contiguous(a_scales_.view().data, a_scale_sizes(problem), DType::kF32);
  for (const TensorView& b : tensors_.b) {
    const TensorView scales = b_scales_.emplace_back(scales_of(b.movedim(0, 1), true)).view();
    tensors_.b_scale.push_back(is_one ? scales.select(0, 0) : scales.movedim(0, 1));
  }
}

Tensor QuantizedTensors::scales_of(const TensorView& lines, bool is_b) const {
  const std::int64_t k = lines.sizes.back();
  const std::int64_t count = num_lines(lines);
  const bool is_one = problem_.scales == Scales::kTensor;
  const std::int64_t each = problem_.scales == Scales::kBlock ? num_scale_blocks(k) : 1;
  Tensor scales = Tensor::host(is_one ? Dims{1, 1} : Dims{count, each}, DType::kF32);
  auto* const values = scales.view().data_as<float>();
  const Tensor line = Tensor::host({k}, DType::kF32);
  const auto* const elements = line.view().data_as<const float>();
  const bool in_squares = is_b && problem_.scales == Scales::kBlock;
  // Lines that share a scale keep it with the first of them.
  const auto scale_at = [&](std::int64_t idx, std::int64_t i) -> float& {
    if (is_one) return values[0];
    const std::int64_t first = in_squares ? idx / kScaleBlock * kScaleBlock : idx;
    return values[first * each + (each == 1 ? 0 : i / kScaleBlock)];
  };
  for (std::int64_t idx = 0; idx < count; ++idx) {
    take(convert(line_of(lines, idx), line.view()));
    for (std::int64_t i = 0; i < k; ++i) {
      float& scale = scale_at(idx, i);
      scale = std::max(scale, std::abs(elements[i]));
    }
  }
  for (std::int64_t i = 0; i < scales.view().numel(); ++i)
    values[i] = values[i] == 0 ? 1.0F : values[i] / largest_of(problem_.dtype);
  for (std::int64_t idx = 0; in_squares && idx < count; ++idx) {
    for (std::int64_t block = 0; block < each; ++block)
      values[idx * each + block] = scale_at(idx, block * kScaleBlock);
  }
  return scales;
}

void QuantizedTensors::read(const harness::Operand& operand, const harness::Window& window,
                            const TensorView& to) const {
  if (operand.kind == OperandKind::kA) return quantize(a_scales_.view(), window, tensors_.a, to);
  if (operand.kind != OperandKind::kB) return tensors_.read(operand, window, to);
  const auto idx = static_cast<std::size_t>(operand.idx);
  quantize(b_scales_[idx].view(), {1 - window.dim, window.shard}, tensors_.b[idx].movedim(0, 1),
           to.movedim(0, 1));
}

void QuantizedTensors::quantize(const TensorView& scales, const harness::Window& window,
                                const TensorView& lines, const TensorView& to) const {
  const TensorView part = lines.narrow(window.dim, window.shard.offset, window.shard.size);
  const std::int64_t k = part.sizes.back();
  const std::int64_t first = window.dim == lines.dim() - 1 ? window.shard.offset : 0;
  const Tensor line = Tensor::host({k}, DType::kF32);
  auto* const elements = line.view().data_as<float>();
  const std::int64_t each = scales.size(1);
  for (std::int64_t idx = 0; idx < num_lines(part); ++idx) {
    take(convert(line_of(part, idx), line.view()));
    const std::int64_t whole = line_in_whole(part, lines.sizes, window, idx);
    const auto* const own = scales.data_as<const float>() + (scales.size(0) == 1 ? 0 : whole * each);
    for (std::int64_t i = 0; i < k; ++i) elements[i] /= own[each == 1 ? 0 : (first + i) / kScaleBlock];
    take(convert(line.view(), line_of(to, idx)));
  }
}

}  // namespace tandem::cli
