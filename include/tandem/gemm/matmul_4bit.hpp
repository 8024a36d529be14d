#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/base/support.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/gemm/mm.hpp>
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
///          It is at most 131072.
/// Errors:  kInvalidArgument with the values; kUnsupported for a weight that is not on a CPU; kNumeric for
///          one that is not finite, with its place; kOutOfMemory.
[[nodiscard]] Result<Weight4bit> quantize_weight_4bit(const TensorView& weight, std::int64_t group_size);

/// The arguments of pack_4bit_weight(). n is out_features, k in_features.
struct Pack4bitArgs {
  /// The nibbles of Weight4bit, u8 [n, k / 2], [n * k / group_size, group_size / 2] or flat; any strides.
  TensorView weight = {};
  /// F32 or bf16 [n, k / group_size], [n * k / group_size, 1] or flat; any strides.
  TensorView scales = {};
  std::optional<TensorView> bias = {};  ///< f32 [n]; any stride
  std::int64_t group_size = 0;          ///< k, or a multiple of 32 that divides k; at most 131072
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

/// What a product by 4-bit weights asks of an implementation.
struct Matmul4bitProblem {
  std::int64_t m = 0;  ///< rows: the product of the input's sizes but the last
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t group_size = 0;
  DType input = DType::kF32;
  DType out = DType::kF32;
  bool bias = false;
  friend bool operator==(const Matmul4bitProblem&, const Matmul4bitProblem&) = default;
};

/// "matmul_4bit 8x4096x4096 bf16 in groups of 32 -> f32 + bias".
[[nodiscard]] std::string to_string(const Matmul4bitProblem& problem);

/// The problem of these arguments. Errors: kInvalidArgument with the values when they do not fit together.
[[nodiscard]] Result<Matmul4bitProblem> problem_of(const Matmul4bitArgs& args,
                                                   const Packed4bitWeight& packed);

/// Whether this device has an implementation, and if not, each one's reason. CPUs have, GPUs have none.
[[nodiscard]] Support can_run(const Matmul4bitProblem& problem, const Device& device);
using Matmul4bitPlan = PlanOf<Matmul4bitProblem>;
[[nodiscard]] Result<Matmul4bitPlan> plan(const Matmul4bitProblem& problem, const Device& device);
/// Enqueues. Memory, order and errors: those of matmul_4bit(); kInvalidArgument when the arguments are not of
/// the plan's problem.
[[nodiscard]] Result<void> run(const Matmul4bitPlan& plan, const Matmul4bitArgs& args,
                               const Packed4bitWeight& packed, Stream& stream);

/// out = input * weight^T + bias. Each row of the input is rounded to asymmetric 8-bit integers first.
/// Values:  For a row, lo = min(0, min x), hi = max(0, max x), s = 255 / (hi - lo), or 1 if both are 0.
///          zero = -128 - lo * s or 127 - hi * s, whichever lies nearer to its end, rounded to nearest even;
///          q = clamp(round(x * s) + zero, -128, 127), halves away from zero. Per group, exact in 32 bits:
///          sum (q - zero) * (w - 8). The f32 sum over groups, k ascending, each by its scale in one fused
///          multiply-add; then / s, + bias, clamped to the finite range of out's type, rounded once. The same
///          bits by every instruction set. A row with a NaN or an infinity gives NaNs.
/// Order:   out is ready for later work on `stream`. No allocation on the repeat path.
/// Memory:  `packed` must live until then. out overlaps nothing.
/// Errors:  kInvalidArgument with the values, kUnsupported with each implementation's reason, now.
/// Source:  docs/design/gemm.md
[[nodiscard]] Result<void> matmul_4bit(const Matmul4bitArgs& args, const Packed4bitWeight& packed,
                                       Stream& stream);

}  // namespace tandem::gemm
