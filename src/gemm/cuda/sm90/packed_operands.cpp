#include "gemm/cuda/sm90/packed_operands.hpp"

#include "base/alignment.hpp"
#include "base/try.hpp"

namespace tandem::gemm::cuda {
namespace {

/// Of copies in scratch memory.
constexpr std::int64_t kCopyAlignment = 256;
static_assert(kCopyAlignment % kAsyncInputAlignment == 0);

bool is_packed(const TensorView& view) {
  return view.is_contiguous() && is_aligned_async_input(view);
}

}  // namespace

bool lies_by_columns(const TensorView& b) {
  if (has_no_holes(b)) return !b.is_contiguous();
  return b.stride(0) < b.stride(1);
}

PackedOperands::PackedOperands(const ProductArgs& args, bool by_columns) : args_(args) {
  add(a_, args_.a, is_packed(*args.a), contiguous_strides(args.a->sizes));
  const TensorView& b = *args.b;
  const bool b_lies_right =
      is_aligned_async_input(b) && (by_columns ? b.movedim(0, 1).is_contiguous() : b.is_contiguous());
  add(b_, args_.b, b_lies_right, by_columns ? Dims{1, b.size(0)} : contiguous_strides(b.sizes));
  add(out_, args_.out, is_packed(*args.out), contiguous_strides(args.out->sizes));
  if (args.a_scale != nullptr) {
    const TensorView& scale = *args.a_scale;
    add(a_scale_, args_.a_scale, scale.numel() == 1 || scale.can_flatten_rows(),
        contiguous_strides(scale.sizes));
  }
  if (args.addend != nullptr)
    add(addend_, args_.addend, is_packed(*args.addend), contiguous_strides(args.addend->sizes));
}

void PackedOperands::add(Operand& operand, const TensorView*& view, bool lies_right, const Dims& strides) {
  operand.caller = operand.packed = *view;
  operand.is_copy = !lies_right;
  view = &operand.packed;
  if (lies_right) return;
  operand.packed = TensorView::contiguous(nullptr, view->sizes, view->dtype, view->device);
  operand.packed.strides = strides;
}

std::int64_t PackedOperands::scratch_bytes() const {
  std::int64_t num_bytes = 0;
  for (const Operand* operand : {&a_, &b_, &a_scale_, &addend_, &out_}) {
    if (operand->is_copy) num_bytes += aligned(operand->packed.size_bytes(), kCopyAlignment);
  }
  return num_bytes;
}

void PackedOperands::place(std::byte* scratch) {
  for (Operand* operand : {&a_, &b_, &a_scale_, &addend_, &out_}) {
    if (!operand->is_copy) continue;
    operand->packed.data = scratch;
    scratch += aligned(operand->packed.size_bytes(), kCopyAlignment);
  }
}

Result<void> PackedOperands::copy_in(Stream& stream) const {
  for (const Operand* operand : {&a_, &b_, &a_scale_, &addend_}) {
    if (operand->is_copy) TANDEM_TRY(stream.copy(operand->caller, operand->packed));
  }
  return {};
}

Result<void> PackedOperands::copy_out(Stream& stream) const {
  return out_.is_copy ? stream.copy(out_.packed, out_.caller) : Result<void>();
}

}  // namespace tandem::gemm::cuda
