#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/gemm/mm.hpp>
#include <utility>

namespace tandem::gemm {

class PackedOperand;

/// The right operand of products in the order in which a device's products read it: for weights that many
/// products multiply by. A copy shares the memory.
class PackedB {
 public:
  explicit PackedB(std::shared_ptr<const PackedOperand> packed) : packed_(std::move(packed)) {}

  [[nodiscard]] std::int64_t k() const;
  [[nodiscard]] std::int64_t n() const;
  [[nodiscard]] DType dtype() const;
  [[nodiscard]] std::int64_t num_bytes() const;
  /// "cpu/tile_avx512": what packed it, and runs its products.
  [[nodiscard]] const std::string& implementation() const;
  [[nodiscard]] const PackedOperand& packed() const { return *packed_; }

 private:
  std::shared_ptr<const PackedOperand> packed_;
};

/// Packs b [k, n] for products of its type, on the calling thread. b is not needed afterwards.
/// Types:   f32, bf16 or f16; any strides.
/// Errors:  kInvalidArgument with the values; kUnsupported where products read b as it is, as on GPUs;
///          kOutOfMemory.
[[nodiscard]] Result<PackedB> pack_b(const TensorView& b, const Device& device);

/// mm() by a packed b; args.b is left out. The same bits.
/// Memory:  `b` must live until out is ready.
/// Errors:  those of mm(); kInvalidArgument for a b that was packed for a device of another configuration.
[[nodiscard]] Result<void> mm(const MmArgs& args, const PackedB& b, Stream& stream);

}  // namespace tandem::gemm
