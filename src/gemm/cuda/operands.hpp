#pragma once

#include <cstddef>
#include <cstdint>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/stream.hpp>

#include "gemm/product.hpp"

namespace tandem::gemm::cuda {

/// A matrix of a product as cuBLASLt takes it: the caller's own where its strides and type allow, else a
/// contiguous copy in scratch memory.
struct Operand {
  TensorView caller;
  TensorView taken;  ///< `caller`, or its copy once place() has given it memory
  bool is_copy = false;
  bool is_column_major = false;
  std::int64_t leading = 0;  ///< elements from one row to the next, or column if column-major

  [[nodiscard]] std::int64_t scratch_bytes() const;
  /// Biggest power of two, up to 128, that the address is a multiple of; 128 for a null pointer.
  [[nodiscard]] int alignment() const;
};

/// The three matrices of a product. With a bias, out is taken as f32: cuBLASLt would round the product to a
/// 16-bit type, add the bias and round again.
class Operands {
 public:
  explicit Operands(const ProductArgs& args);

  [[nodiscard]] const Operand& a() const { return a_; }
  [[nodiscard]] const Operand& b() const { return b_; }
  [[nodiscard]] const Operand& out() const { return out_; }

  /// Bytes of all copies.
  [[nodiscard]] std::int64_t scratch_bytes() const;
  /// Gives the copies their memory, of scratch_bytes().
  void place(std::byte* scratch);
  /// Enqueues the copies that the product reads, and that of out behind a product without a bias.
  [[nodiscard]] Result<void> copy_in(bool accumulate, Stream& stream) const;
  [[nodiscard]] Result<void> copy_out(Stream& stream) const;

 private:
  Operand a_;
  Operand b_;
  Operand out_;
};

}  // namespace tandem::gemm::cuda
