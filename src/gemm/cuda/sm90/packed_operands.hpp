#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tandem/base/error.hpp>
#include <tandem/device/stream.hpp>

#include "gemm/product.hpp"

namespace tandem::gemm::cuda {

/// Whether a native kernel finds columns of b contiguous rather than rows, as b lies or as it is copied.
[[nodiscard]] bool lies_by_columns(const TensorView& b);

/// The operands of a product whose a is there, as native kernels take them: matrices without holes, from
/// multiples of kAsyncInputAlignment bytes on, and scales of rows that are one dim apart. What lies otherwise
/// is copied. So whether a native kernel runs depends on types and sizes alone.
class PackedOperands {
 public:
  /// `by_columns`: the kernel's order of b.
  PackedOperands(const ProductArgs& args, bool by_columns);
  PackedOperands(const PackedOperands&) = delete;
  PackedOperands& operator=(const PackedOperands&) = delete;

  /// Bytes of all copies.
  [[nodiscard]] std::int64_t scratch_bytes() const;
  /// Gives the copies their memory, of scratch_bytes().
  void place(std::byte* scratch);
  /// Enqueues the copies that the product reads, and that of out behind it.
  [[nodiscard]] Result<void> copy_in(Stream& stream) const;
  [[nodiscard]] Result<void> copy_out(Stream& stream) const;
  /// The product's, of packed operands.
  [[nodiscard]] const ProductArgs& args() const { return args_; }

 private:
  struct Operand {
    TensorView caller;
    TensorView packed;
    bool is_copy = false;
  };
  /// Keeps the view, or plans a copy of these strides where it does not lie as it must.
  void add(Operand& operand, const TensorView*& view, bool lies_right, const Dims& strides);

  ProductArgs args_;
  Operand a_;
  Operand b_;
  Operand a_scale_;
  Operand addend_;
  Operand out_;
};

}  // namespace tandem::gemm::cuda
