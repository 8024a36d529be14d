#include "gemm/cpu/quantize_rows.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <span>

#include "base/convert_elements.hpp"
#include "gemm/row_dims.hpp"

namespace tandem::gemm::cpu {
namespace {

constexpr std::int64_t kPartElements = 512;

/// Elements that share a scale.
struct Block {
  std::int64_t row;
  std::int64_t first;
  std::int64_t count;
};

std::int64_t offset_of(const RowQuantization& rows, const RowTensor& tensor, std::int64_t row) {
  return row_offset(rows.row_sizes, rows.num_row_dims, tensor.row_strides, row);
}

/// Calls use(first, values) with each part of the block, widened.
template <class Use>
void for_each_part(const RowQuantization& rows, const Block& block, Use use) {
  const std::int64_t begin = offset_of(rows, rows.input, block.row);
  float memory[kPartElements];
  for (std::int64_t at = 0; at < block.count; at += kPartElements) {
    const std::int64_t first = block.first + at;
    const std::span values(memory, static_cast<std::size_t>(std::min(kPartElements, block.count - at)));
    const auto count = static_cast<std::int64_t>(values.size());
    convert_elements(row_view(rows.input.data, begin + first * rows.input.col_stride, count,
                              rows.input.col_stride, rows.input_dtype),
                     row_view(memory, 0, count, 1, DType::kF32));
    use(first, values);
  }
}

/// The order of non-negative floats is that of their bits.
float largest_finite_magnitude(const RowQuantization& rows, const Block& block) {
  constexpr std::uint32_t kInfinity = 0x7f800000U;
  std::uint32_t largest = 0;
  for_each_part(rows, block, [&](std::int64_t, std::span<float> values) {
    for (const float value : values) {
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(value) & 0x7fffffffU;
      largest = std::max(largest, bits < kInfinity ? bits : 0U);
    }
  });
  return std::bit_cast<float>(largest);
}

void quantize(const RowQuantization& rows, const Block& block, float& scale) {
  const float amax = largest_finite_magnitude(rows, block);
  scale = amax == 0 ? 1.0F : std::max(amax, rows.smallest_amax) / rows.largest;
  const std::int64_t begin = offset_of(rows, rows.out, block.row);
  for_each_part(rows, block, [&](std::int64_t first, std::span<float> values) {
    for (float& value : values) {
      value /= scale;
      if (value != value) value = std::numeric_limits<float>::quiet_NaN();
    }
    const auto count = static_cast<std::int64_t>(values.size());
    convert_elements(row_view(values.data(), 0, count, 1, DType::kF32),
                     row_view(rows.out.data, begin + first * rows.out.col_stride, count, rows.out.col_stride,
                              rows.out_dtype));
  });
}

}  // namespace

Result<void> run(const RowQuantization& rows) {
  for (std::int64_t row = 0; row < rows.num_rows; ++row) {
    float* const scales = static_cast<float*>(rows.scale.data) + offset_of(rows, rows.scale, row);
    for (std::int64_t i = 0; i < rows.scales_a_row; ++i) {
      const std::int64_t first = i * rows.block;
      quantize(rows, {row, first, std::min(rows.block, rows.k - first)}, scales[i * rows.scale.col_stride]);
    }
  }
  return {};
}

}  // namespace tandem::gemm::cpu
