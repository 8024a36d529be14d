#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>
#include <vector>

namespace tandem::gemm {

// Products of activations with 4-bit weights, on CPUs. A weight is stored as unsigned nibbles q with offset 8
// and stands for (q - 8) * scale. A scale belongs to an output feature and a group of its input features.

/// 4-bit weights as they are stored and exchanged: PyTorch's form.
struct Weight4bit {
  std::vector<std::uint8_t> nibbles;  ///< [n][k / 2]: the even k in the low half of a byte
  std::vector<float> scales;          ///< [n][k / group_size]
};

/// Rounds weights to 4 bits: scale = max |w| of the group / 7, or the smallest normal f32 if that is larger;
/// q = min(trunc(w / scale + 8.5), 15).
/// Shapes:  weight f32 [n, k], any strides; group_size is k or a multiple of 32, and divides k; 32 divides k.
/// Errors:  kInvalidArgument with the values; kUnsupported for a weight that is not on a CPU; kNumeric for
///          one that is not finite, with its place; kOutOfMemory.
[[nodiscard]] Result<Weight4bit> quantize_weight_4bit(const TensorView& weight, std::int64_t group_size);

/// The arguments of pack_4bit_weight(). n is out_features, k in_features.
struct Pack4bitArgs {
  TensorView weight = {};               ///< u8 [n, k / 2], or flat: the nibbles of Weight4bit; any strides
  TensorView scales = {};               ///< f32 or bf16 [n, k / group_size], or flat; any strides
  std::optional<TensorView> bias = {};  ///< f32 [n]; any stride
  std::int64_t group_size = 0;          ///< k, or a multiple of 32 that divides k
  std::int64_t in_features = 0;         ///< k, a multiple of 32
  std::int64_t out_features = 0;        ///< n
};

class PackedWeight;

/// A weight in the order in which matmul_4bit() reads it, with its scales and bias. A copy shares the memory.
/// It takes at most 1.15 times the bytes of nibbles and f32 scales, but for what fills n up to 32.
class Packed4bitWeight {
 public:
  explicit Packed4bitWeight(std::shared_ptr<const PackedWeight> packed) : packed_(std::move(packed)) {}

  [[nodiscard]] std::int64_t in_features() const;
  [[nodiscard]] std::int64_t out_features() const;
  [[nodiscard]] std::int64_t group_size() const;
  [[nodiscard]] std::int64_t num_bytes() const;
  /// All that is read in a product, but for the bias.
  [[nodiscard]] std::span<const std::byte> bytes() const;
  [[nodiscard]] const PackedWeight& packed() const { return *packed_; }

 private:
  std::shared_ptr<const PackedWeight> packed_;
};

/// Packs a weight. Its arguments are not needed afterwards.
/// Errors:  kInvalidArgument with the values; kUnsupported for tensors that are not on a CPU; kOutOfMemory.
[[nodiscard]] Result<Packed4bitWeight> pack_4bit_weight(const Pack4bitArgs& args);

/// The arguments of matmul_4bit().
struct Matmul4bitArgs {
  TensorView input = {};  ///< [..., k], f32 or bf16; any strides
  TensorView out = {};    ///< [..., n], f32 or bf16; any strides
};

/// out = input * weight^T + bias. Each row of the input is rounded to asymmetric 8-bit integers first.
/// Values:  For a row, lo = min(0, min x), hi = max(0, max x), s = 255 / (hi - lo), or 1 if both are 0.
///          zero = -128 - lo * s or 127 - hi * s, whichever lies nearer to its end, rounded to nearest even;
///          q = clamp(round(x * s) + zero, -128, 127), halves away from zero. Per group, exact in 32 bits:
///          sum (q - zero) * (w - 8). The f32 sum over groups, k ascending, each by its scale in one fused
///          multiply-add; then / s, + bias, clamped to the finite range of out's type, rounded once. The same
///          bits by every instruction set. A row with a NaN or an infinity gives NaNs.
/// Order:   out is ready for later work on `stream`. No allocation on the repeat path.
/// Memory:  `packed` must live until then. out overlaps nothing.
/// Errors:  kInvalidArgument with the values; kUnsupported on other devices than CPUs.
[[nodiscard]] Result<void> matmul_4bit(const Matmul4bitArgs& args, const Packed4bitWeight& packed,
                                       Stream& stream);

/// "cpu/4bit_avx512_vnni": what runs it on this device. Errors: kUnsupported where nothing does.
[[nodiscard]] Result<std::string_view> matmul_4bit_implementation(const Device& device);

}  // namespace tandem::gemm
