#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/convert_elements.hpp"
#include "base/try.hpp"
#include "gemm/cpu/four_bit_rows.hpp"
#include "gemm/cpu/scratch.hpp"
#include "gemm/row_dims.hpp"

namespace tandem::gemm::cpu {
namespace {

/// Rows at once: what they are rounded to stays in the second-level cache.
std::int64_t rows_at_once(const PackedWeight& weight) {
  constexpr std::int64_t kBytes = 512 << 10;
  const std::int64_t rows = kBytes / std::max<std::int64_t>(weight.k(), 1) / 8 * 8;
  return std::clamp<std::int64_t>(rows, 8, 256);
}

/// Cuts floats off a piece of memory, in whole cache lines.
class Cutter {
 public:
  explicit Cutter(float* memory) : at_(memory) {}
  template <class T>
  T* take(std::int64_t count) {
    T* const taken = reinterpret_cast<T*>(at_);
    at_ += floats(count * static_cast<std::int64_t>(sizeof(T)));
    return taken;
  }
  static std::int64_t floats(std::int64_t bytes) { return (bytes + 63) / 64 * 16; }

 private:
  float* at_;
};

/// The memory of one call.
struct Workspace {
  FourBitRows rows;
  float* values = nullptr;  ///< [k]: a row of the input, widened
  float* sums = nullptr;    ///< [rows][kPanel]
};

std::int64_t floats_of(std::int64_t count, const PackedWeight& weight) {
  const std::int64_t of_groups = Cutter::floats(count * weight.num_groups() * 4);
  return Cutter::floats(count * weight.k()) + 2 * of_groups + 2 * Cutter::floats(count * 4) +
         Cutter::floats(weight.k() * 4) + Cutter::floats(count * PackedWeight::kPanel * 4);
}

Workspace cut(float* memory, std::int64_t count, const PackedWeight& weight) {
  Cutter cutter(memory);
  Workspace space;
  space.rows.bytes = cutter.take<std::int8_t>(count * weight.k());
  space.rows.sums = cutter.take<std::int32_t>(count * weight.num_groups());
  space.rows.pairs = cutter.take<std::int32_t>(count * weight.num_groups());
  space.rows.scales = cutter.take<float>(count);
  space.rows.zeros = cutter.take<std::int32_t>(count);
  space.rows.k = weight.k();
  space.rows.group = weight.group();
  space.values = cutter.take<float>(weight.k());
  space.sums = cutter.take<float>(count * PackedWeight::kPanel);
  return space;
}

std::int64_t offset_of(const FourBitProduct& product, const RowTensor& tensor, std::int64_t row) {
  return row_offset(product.row_sizes, product.num_row_dims, tensor.row_strides, row);
}

void quantize(const FourBitProduct& product, std::int64_t first, const FourBitKernels& kernels,
              const Workspace& space) {
  const std::int64_t k = space.rows.k;
  for (std::int64_t row = 0; row < space.rows.count; ++row) {
    const std::int64_t begin = offset_of(product, product.input, first + row);
    const bool is_plain = product.input_dtype == DType::kF32 && product.input.col_stride == 1;
    const float* values = static_cast<const float*>(product.input.data) + begin;
    if (!is_plain) {
      convert_elements(row_view(product.input.data, begin, k, product.input.col_stride, product.input_dtype),
                       row_view(space.values, 0, k, 1, DType::kF32));
      values = space.values;
    }
    kernels.quantize_row(values, row, space.rows);
  }
}

/// Writes a panel in the type of out, by rows as the product has them or else by way of the stack.
template <class T>
void write(const FourBitProduct& product, std::int64_t first, std::int64_t panel,
           void (*finish_row)(const float*, float, const float*, T*), const Workspace& space) {
  const PackedWeight& weight = *product.weight;
  const std::int64_t column = panel * PackedWeight::kPanel;
  const std::int64_t columns = std::min(PackedWeight::kPanel, weight.n() - column);
  const float* const bias = weight.bias().empty() ? nullptr : weight.bias().data() + column;
  const bool is_whole = product.out.col_stride == 1 && columns == PackedWeight::kPanel;
  for (std::int64_t row = 0; row < space.rows.count; ++row) {
    const float* const sums = space.sums + row * PackedWeight::kPanel;
    const std::int64_t at = offset_of(product, product.out, first + row) + column * product.out.col_stride;
    T* const to = static_cast<T*>(product.out.data) + at;
    T finished[PackedWeight::kPanel];
    finish_row(sums, space.rows.scales[row], bias, is_whole ? to : finished);
    if (is_whole) continue;
    for (std::int64_t c = 0; c < columns; ++c) to[c * product.out.col_stride] = finished[c];
  }
}

}  // namespace

RowScale row_scale_of(float lo, float hi) {
  // Neither the range nor its inverse may leave f32.
  const double range = static_cast<double>(hi) - lo;
  const double scale = std::min(255.0 / range, static_cast<double>(std::numeric_limits<float>::max()));
  RowScale row{.scale = lo == hi ? 1.0F : static_cast<float>(scale)};
  const float from_low = -128.0F - lo * row.scale;
  const float from_high = 127.0F - hi * row.scale;
  const float zero = -128.0F + lo * row.scale + (127.0F + hi * row.scale) > 0 ? from_low : from_high;
  row.zero = static_cast<std::int32_t>(std::nearbyint(std::clamp(zero, -128.0F, 127.0F)));
  return row;
}

FourBitProduct four_bit_product_of(const Product& product, const ProductArgs& args) {
  FourBitProduct task{.weight = args.packed,
                      .num_row_dims = args.a->dim() - 1,
                      .num_rows = product.m,
                      .input = row_tensor_of(*args.a),
                      .out = row_tensor_of(*args.out),
                      .input_dtype = product.a,
                      .out_dtype = product.out};
  for (int d = 0; d < task.num_row_dims; ++d) task.row_sizes[d] = args.a->size(d);
  const std::array strides = {&task.input.row_strides[0], &task.out.row_strides[0]};
  task.num_row_dims = merge_row_dims(task.row_sizes, task.num_row_dims, strides);
  return task;
}

Result<void> run(const FourBitProduct& product, const FourBitKernels& kernels) {
  const PackedWeight& weight = *product.weight;
  const std::int64_t at_once = std::min(rows_at_once(weight), product.num_rows);
  TANDEM_ASSIGN(float* const memory, thread_scratch(floats_of(at_once, weight)));
  for (std::int64_t first = 0; first < product.num_rows; first += at_once) {
    Workspace space = cut(memory, at_once, weight);
    space.rows.count = std::min(at_once, product.num_rows - first);
    quantize(product, first, kernels, space);
    for (std::int64_t panel = 0; panel < weight.num_panels(); ++panel) {
      std::fill_n(space.sums, weight.num_groups() == 0 ? space.rows.count * PackedWeight::kPanel : 0, 0.0F);
      kernels.multiply_panel(space.rows, weight, panel, space.sums);
      if (product.out_dtype == DType::kF32) {
        write(product, first, panel, kernels.finish_row, space);
      } else {
        write(product, first, panel, kernels.finish_row_bf16, space);
      }
    }
  }
  return {};
}

}  // namespace tandem::gemm::cpu
