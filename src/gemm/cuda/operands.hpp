#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/stream.hpp>

#include "gemm/library_share.hpp"
#include "gemm/product.hpp"

namespace tandem::gemm::cuda {

/// A matrix, or a scale, of a product as cuBLASLt takes it: the caller's own where its strides, address and
/// type allow, else a copy in scratch memory. It has `lines` rows, or columns if it is column-major.
struct Operand {
  TensorView caller;
  TensorView taken;  ///< `caller`, or its copy once place() has given it memory
  bool is_copy = false;
  bool is_column_major = false;
  std::int64_t lines = 0;
  std::int64_t leading = 0;  ///< elements from one line to the next

  /// From the first element to behind the last line.
  [[nodiscard]] std::int64_t extent_bytes() const { return lines * leading * size_bytes(taken.dtype); }
  [[nodiscard]] std::int64_t scratch_bytes() const;
  /// Biggest power of two, up to 128, that the address is a multiple of; 128 for a null pointer.
  [[nodiscard]] int alignment() const;
};

/// The matrices and scales of the library's share. Where it makes sums for a pass, out is taken as f32.
class Operands {
 public:
  Operands(const ProductArgs& args, const LibraryShare& share);

  [[nodiscard]] const Operand& a() const { return a_; }
  [[nodiscard]] const Operand& b() const { return b_; }
  [[nodiscard]] const Operand& out() const { return out_; }
  /// Null data: the library has no such scale.
  [[nodiscard]] const Operand& a_scale() const { return a_scale_; }
  [[nodiscard]] const Operand& b_scale() const { return b_scale_; }
  /// What the library adds, of the type that it makes: the addend, or out where it is its own addend or the
  /// product accumulates. Null: nothing.
  [[nodiscard]] const Operand* addend() const {
    if (adds_out_) return &out_;
    return addend_.lines == 0 ? nullptr : &addend_;
  }

  /// Bytes of all copies.
  [[nodiscard]] std::int64_t scratch_bytes() const;
  /// Of the largest operand.
  [[nodiscard]] std::int64_t most_bytes() const;
  /// Gives the copies their memory, of scratch_bytes().
  void place(std::byte* scratch);
  /// Enqueues the copies that the product reads, and that of out behind a product without a pass.
  [[nodiscard]] Result<void> copy_in(Stream& stream) const;
  [[nodiscard]] Result<void> copy_out(Stream& stream) const;

 private:
  [[nodiscard]] std::array<const Operand*, 6> all() const {
    return {&a_, &b_, &a_scale_, &b_scale_, &out_, &addend_};
  }

  Operand a_;
  Operand b_;
  Operand a_scale_;
  Operand b_scale_;
  Operand out_;
  Operand addend_;  ///< another one; without lines: none
  bool adds_out_ = false;
};

}  // namespace tandem::gemm::cuda
