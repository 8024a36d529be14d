#include "gemm/cuda/operands.hpp"

#include <algorithm>

#include "base/alignment.hpp"
#include "base/try.hpp"

namespace tandem::gemm::cuda {
namespace {

/// Of copies of operands in scratch memory.
constexpr std::int64_t kCopyAlignment = 256;

/// Elements from row to row if the view is row-major without overlap; 0 if it is not.
std::int64_t leading_of_rows(const TensorView& view) {
  const std::int64_t cols = view.size(1);
  if (cols > 1 && view.stride(1) != 1) return 0;
  if (view.size(0) == 1) return cols;
  return view.stride(0) >= cols ? view.stride(0) : 0;
}

/// A contiguous copy, without memory for now.
Operand copy_of(const TensorView& view, DType dtype) {
  Operand operand;
  operand.caller = view;
  operand.taken = TensorView::contiguous(nullptr, view.sizes, dtype, view.device);
  operand.is_copy = true;
  operand.leading = view.sizes.back();
  return operand;
}

Operand operand_of(const TensorView& view, bool may_be_column_major) {
  Operand operand;
  operand.caller = view;
  operand.taken = view;
  operand.leading = leading_of_rows(view);
  if (operand.leading > 0) return operand;
  if (may_be_column_major) {
    operand.leading = leading_of_rows(view.movedim(0, 1));
    operand.is_column_major = true;
    if (operand.leading > 0) return operand;
  }
  return copy_of(view, view.dtype);
}

Operand out_of(const ProductArgs& args) {
  const bool is_rounded_later = args.bias != nullptr && args.out->dtype != DType::kF32;
  return is_rounded_later ? copy_of(*args.out, DType::kF32) : operand_of(*args.out, false);
}

}  // namespace

std::int64_t Operand::scratch_bytes() const {
  return is_copy ? aligned(taken.size_bytes(), kCopyAlignment) : 0;
}

int Operand::alignment() const {
  return alignment_of(is_copy ? nullptr : taken.data);
}

Operands::Operands(const ProductArgs& args)
    : a_(operand_of(*args.a, true)), b_(operand_of(*args.b, true)), out_(out_of(args)) {}

std::int64_t Operands::scratch_bytes() const {
  return a_.scratch_bytes() + b_.scratch_bytes() + out_.scratch_bytes();
}

void Operands::place(std::byte* scratch) {
  for (Operand* operand : {&a_, &b_, &out_}) {
    if (!operand->is_copy) continue;
    operand->taken.data = scratch;
    scratch += operand->scratch_bytes();
  }
}

Result<void> Operands::copy_in(bool accumulate, Stream& stream) const {
  for (const Operand* operand : {&a_, &b_, accumulate ? &out_ : nullptr}) {
    if (operand != nullptr && operand->is_copy) TANDEM_TRY(stream.copy(operand->caller, operand->taken));
  }
  return {};
}

Result<void> Operands::copy_out(Stream& stream) const {
  if (!out_.is_copy) return {};
  return stream.copy(out_.taken, out_.caller);
}

}  // namespace tandem::gemm::cuda
