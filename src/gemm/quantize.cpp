#include <tandem/gemm/quantize.hpp>

#include <array>

#include "base/format.hpp"
#include "base/overlap.hpp"
#include "base/try.hpp"
#include "base/with_last.hpp"
#include "device/check_view.hpp"
#include "gemm/operand_checks.hpp"
#include "gemm/row_dims.hpp"
#include "gemm/row_quantization.hpp"

namespace tandem::gemm {
namespace {

constexpr std::string_view kWho = "quantize_rows";

Result<void> check_shapes(const QuantizeRowsArgs& args) {
  const TensorView& input = args.input;
  if (input.dim() < 1 || !is_factor_type(input.dtype)) {
    return failf(ErrorCode::kInvalidArgument, "{}: input is {} {}, need f32, bf16 or f16 [..., k]", kWho,
                 to_string(input.dtype), to_string(input.sizes));
  }
  if (!is_f8(args.out.dtype) || args.out.sizes != input.sizes) {
    return failf(ErrorCode::kInvalidArgument, "{}: out is {} {}, need f8e4m3 or f8e5m2 {}", kWho,
                 to_string(args.out.dtype), to_string(args.out.sizes), to_string(input.sizes));
  }
  const Dims by_rows = with_last(input.sizes, 1);
  const Dims by_blocks = with_last(input.sizes, num_scale_blocks(input.sizes.back()));
  if (args.scale.dtype != DType::kF32 || (args.scale.sizes != by_rows && args.scale.sizes != by_blocks)) {
    return failf(ErrorCode::kInvalidArgument, "{}: scale is {} {}, need f32 {} by rows or {} by blocks", kWho,
                 to_string(args.scale.dtype), to_string(args.scale.sizes), to_string(by_rows),
                 to_string(by_blocks));
  }
  return {};
}

Result<void> check_memory(const QuantizeRowsArgs& args) {
  const Named input{"input", -1, &args.input};
  const Named out{"out", -1, &args.out};
  const Named scale{"scale", -1, &args.scale};
  TANDEM_TRY(check_writable(kWho, out));
  TANDEM_TRY(check_writable(kWho, scale));
  TANDEM_TRY(check_apart(kWho, out, input));
  TANDEM_TRY(check_apart(kWho, scale, input));
  return check_apart(kWho, scale, out);
}

RowQuantization quantization_of(const QuantizeRowsArgs& args) {
  const TensorView& input = args.input;
  const float largest = args.out.dtype == DType::kF8E4M3 ? 448.0F : 57344.0F;
  RowQuantization rows{.num_row_dims = input.dim() - 1,
                       .num_rows = numel(with_last(input.sizes, 1)),
                       .k = input.sizes.back(),
                       .block = input.sizes.back(),
                       .scales_a_row = args.scale.sizes.back(),
                       .input = row_tensor_of(input),
                       .out = row_tensor_of(args.out),
                       .scale = row_tensor_of(args.scale),
                       .input_dtype = input.dtype,
                       .out_dtype = args.out.dtype,
                       .largest = largest,
                       .smallest_amax = largest * 0x1p-126F};
  if (rows.scales_a_row > 1) rows.block = kScaleBlock;
  for (int d = 0; d < rows.num_row_dims; ++d) rows.row_sizes[d] = input.size(d);
  const std::array strides = {&rows.input.row_strides[0], &rows.out.row_strides[0],
                              &rows.scale.row_strides[0]};
  rows.num_row_dims = merge_row_dims(rows.row_sizes, rows.num_row_dims, strides);
  return rows;
}

}  // namespace

Result<void> quantize_rows(const QuantizeRowsArgs& args, Stream& stream) {
  const Device& device = stream.device();
  TANDEM_TRY(check_view(kWho, "input", args.input, device));
  TANDEM_TRY(check_view(kWho, "out", args.out, device));
  TANDEM_TRY(check_view(kWho, "scale", args.scale, device));
  TANDEM_TRY(check_shapes(args));
  TANDEM_TRY(check_memory(args));
  const RowQuantizer* const quantizer = device.service<RowQuantizer>();
  if (quantizer == nullptr) {
    return failf(ErrorCode::kUnsupported, "{}: {} has no products attached", kWho, to_string(device.id()));
  }
  if (args.scale.numel() == 0) return {};
  return quantizer->run(quantization_of(args), stream);
}

}  // namespace tandem::gemm
