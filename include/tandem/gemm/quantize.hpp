#pragma once

#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/gemm/scaled_mm.hpp>

namespace tandem::gemm {

/// The arguments of quantize_rows(). kb is num_scale_blocks(k).
struct QuantizeRowsArgs {
  TensorView input = {};  ///< [..., k], f32, bf16 or f16; any strides
  TensorView out = {};    ///< input's sizes, f8e4m3 or f8e5m2; any strides
  TensorView scale = {};  ///< f32, input's sizes with 1 or kb last; any strides
};

/// Rounds rows to f8, each by a scale of its own, so that out * scale is the input: the operand of
/// scaled_matmul() and its scale.
/// Shapes:  N-D as it stands. A scale belongs to a row, or to a row and kScaleBlock of k.
/// Values:  With `largest` the largest finite number of out's type (448 or 57344), and amax the largest
///          magnitude of the finite elements that share the scale, in f32, each step rounded to nearest even:
///            scale = amax == 0 ? 1 : max(amax, largest * 2^-126) / largest
///            out = input / scale, rounded to out's type
///          A scale is never below 2^-126, the smallest normal f32: a smaller one could be 0, or be taken for
///          0 by hardware that flushes. Where all elements are 0, any scale gives them back, and 1 needs no
///          care in later arithmetic. Infinities saturate to the row's largest magnitude; NaN stays NaN, in
///          one form. Neither makes a scale infinite. CPUs and GPUs give the same bits.
/// Memory:  input, out and scale do not overlap.
/// Order:   out and scale are ready for later work on `stream`. Nothing is allocated.
/// Errors:  kInvalidArgument with the values, kUnsupported where the device has no products, now.
/// Source:  docs/design/gemm.md
[[nodiscard]] Result<void> quantize_rows(const QuantizeRowsArgs& args, Stream& stream);

}  // namespace tandem::gemm
