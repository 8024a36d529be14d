#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/base/support.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>

namespace tandem::gemm {

/// Along k, a scale by blocks has one number for so many elements; the last block may be shorter.
inline constexpr std::int64_t kScaleBlock = 128;
[[nodiscard]] constexpr std::int64_t num_scale_blocks(std::int64_t size) {
  return (size + kScaleBlock - 1) / kScaleBlock;
}

/// out = (sum_k a * b * a_scale * b_scale + bias) * result_scale (+ addend), rounded once. cuBLASLt may round
/// to out's type before it adds an addend of that type.
/// Shapes:  N-D as it stands: no reshape before or after. Any strides, for all of them. kb and nb are the
///          num_scale_blocks() of k and n, and rows is the product of a's sizes but the last.
/// Types:   a and b f8e4m3 or f8e5m2, in any combination, or f32, bf16 or f16, equal. f8 results saturate. A
///          scale that is left out is 1.
/// Sums:    f32, in the order of mm(), times a's scale, times b's. Where a scale goes by blocks of k, each
///          block's sum is multiplied by the product of both scales and added to the sum of those before.
/// Memory:  out may be the addend, element for element; it overlaps none of the others.
struct ScaledMmArgs {
  TensorView a = {};                    ///< [..., k]
  TensorView b = {};                    ///< [k, n]
  TensorView a_scale = {};              ///< f32: one element, a's sizes with 1 or kb last, or [rows, 1 or kb]
  TensorView b_scale = {};              ///< f32: one element, [1, n], [kb, n] or [kb, nb]
  TensorView out = {};                  ///< [..., n], f32, bf16, f16 or f8
  std::optional<TensorView> bias = {};  ///< [n], any of the types that out may have
  std::optional<TensorView> result_scale = {};  ///< f32, one element
  /// Lets GPUs add f8 products in registers of fewer bits over all of k, not over 128 of it. CPUs do not.
  bool fast_accum = false;
  std::optional<TensorView> addend = {};  ///< f32 or out's type, out's sizes
  int heuristic = 0;                      ///< as in MmArgs
};

/// What a product asks of an implementation whose operands have scales.
struct ScaledProblem {
  std::int64_t m = 0;  ///< rows: the product of a's sizes but the last
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType a = DType::kF8E4M3;
  DType b = DType::kF8E4M3;
  DType out = DType::kBF16;
  friend bool operator==(const ScaledProblem&, const ScaledProblem&) = default;
};

/// "scaled_mm 512x1024x2048 f8e4m3 * f8e4m3 -> bf16".
[[nodiscard]] std::string to_string(const ScaledProblem& problem);

/// The problem of these arguments. Errors: kInvalidArgument with the values when they do not fit together.
[[nodiscard]] Result<ScaledProblem> problem_of(const ScaledMmArgs& args);

/// Whether this device has an implementation, and if not, each one's reason. What mm() takes too, two
/// matrices without scales, runs wherever mm() does.
[[nodiscard]] Support can_run(const ScaledProblem& problem, const Device& device);

/// Enqueues.
/// Order:   out is ready for later work on `stream`. No allocation on the repeat path.
/// Errors:  kInvalidArgument with the values, kUnsupported with each implementation's reason, now.
/// Source:  docs/design/gemm.md
[[nodiscard]] Result<void> scaled_matmul(const ScaledMmArgs& args, Stream& stream);
/// Makes now what the first run would make: see prepare() of mm.hpp.
[[nodiscard]] Result<void> prepare(const ScaledMmArgs& like, Stream& stream);

}  // namespace tandem::gemm
