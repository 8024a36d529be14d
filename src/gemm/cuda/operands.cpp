#include "gemm/cuda/operands.hpp"

#include <algorithm>

#include "base/alignment.hpp"
#include "base/overlap.hpp"
#include "base/try.hpp"

namespace tandem::gemm::cuda {
namespace {

/// Of copies of operands in scratch memory.
constexpr std::int64_t kCopyAlignment = 256;
/// What cuBLASLt wants of f8 products: of the addresses of matrices and scales, and of the lines of matrices.
constexpr std::int64_t kF8Alignment = 16;

enum class Lines { kRows, kColumns, kEither };

/// How the library takes a matrix.
struct Demand {
  Lines lines = Lines::kEither;
  std::int64_t line_bytes = 1;  ///< the address, and the bytes from line to line, are multiples of it
};

/// Elements from row to row if the view is row-major without overlap; 0 if it is not.
std::int64_t leading_of_rows(const TensorView& view) {
  const std::int64_t cols = view.size(1);
  if (cols > 1 && view.stride(1) != 1) return 0;
  if (view.size(0) == 1) return cols;
  return view.stride(0) >= cols ? view.stride(0) : 0;
}

/// A copy without holes, without memory for now.
Operand copy_of(const TensorView& view, DType dtype, bool is_column_major = false) {
  Operand operand;
  operand.caller = view;
  operand.taken = TensorView::contiguous(nullptr, view.sizes, dtype, view.device);
  operand.is_copy = true;
  operand.is_column_major = is_column_major;
  operand.leading = view.sizes.back();
  operand.lines = view.numel() / std::max<std::int64_t>(operand.leading, 1);
  if (is_column_major) {
    operand.taken.strides = {1, view.size(0)};
    std::swap(operand.leading, operand.lines);
  }
  return operand;
}

bool is_met(const Operand& operand, const Demand& demand) {
  return operand.leading > 0 && alignment_of(operand.taken.data) >= demand.line_bytes &&
         operand.leading * size_bytes(operand.taken.dtype) % demand.line_bytes == 0;
}

Operand operand_of(const TensorView& view, const Demand& demand) {
  if (view.dim() != 2 && !view.can_flatten_rows()) return copy_of(view, view.dtype);
  Operand operand;
  operand.caller = operand.taken = view.dim() == 2 ? view : view.flatten_rows();
  if (demand.lines != Lines::kColumns) {
    operand.leading = leading_of_rows(operand.taken);
    operand.lines = operand.taken.size(0);
    if (is_met(operand, demand)) return operand;
  }
  if (demand.lines != Lines::kRows) {
    operand.leading = leading_of_rows(operand.taken.movedim(0, 1));
    operand.lines = operand.taken.size(1);
    operand.is_column_major = true;
    if (is_met(operand, demand)) return operand;
  }
  return copy_of(operand.caller, view.dtype, demand.lines == Lines::kColumns);
}

/// An f32 out takes the sums itself, unless the addend, which may be out, is still to be read.
Operand out_of(const ProductArgs& args, const LibraryShare& share, std::int64_t line_bytes) {
  const bool takes_sums = args.out->dtype == DType::kF32 && args.addend == nullptr;
  if (!share.rounds && !takes_sums) return copy_of(*args.out, DType::kF32);
  return operand_of(*args.out, {.lines = Lines::kRows, .line_bytes = line_bytes});
}

/// A scale in the memory order that the library wants, `strides`.
Operand scale_of(const TensorView& scale, const Dims& strides, std::int64_t lines, std::int64_t leading) {
  Operand operand;
  operand.caller = operand.taken = scale;
  operand.lines = lines;
  operand.leading = leading;
  operand.is_copy = alignment_of(scale.data) < kF8Alignment;
  for (int d = 0; d < scale.dim(); ++d)
    operand.is_copy = operand.is_copy || (scale.size(d) > 1 && scale.stride(d) != strides[d]);
  if (!operand.is_copy) return operand;
  operand.taken = TensorView::contiguous(nullptr, scale.sizes, scale.dtype, scale.device);
  operand.taken.strides = strides;
  return operand;
}

Operand one_number(const TensorView& scale) {
  Operand operand;
  operand.caller = operand.taken = scale;
  operand.lines = operand.leading = 1;
  return operand;
}

/// The rows' numbers for one block of k lie side by side, and those for the next block behind them.
Operand scale_of_a(const TensorView& scale, Scale kind) {
  if (kind == Scale::kTensor) return one_number(scale);
  const std::int64_t blocks = scale.sizes.back();
  const std::int64_t rows = scale.numel() / blocks;
  Dims strides = contiguous_strides(scale.sizes);
  for (int d = 0; d < scale.dim() - 1; ++d) strides[d] /= blocks;
  strides[scale.dim() - 1] = rows;
  return scale_of(scale, strides, blocks, rows);
}

/// By columns as a's by rows. By blocks the numbers for one block of columns lie side by side, and those for
/// the next block begin at a multiple of four.
Operand scale_of_b(const TensorView& scale, Scale kind) {
  if (kind == Scale::kTensor) return one_number(scale);
  const std::int64_t blocks = scale.size(0);
  const std::int64_t across = scale.size(1);
  if (kind != Scale::kBlock128) return scale_of(scale, {across, 1}, blocks, across);
  const std::int64_t leading = aligned(blocks, 4);
  return scale_of(scale, {1, leading}, across, leading);
}

}  // namespace

std::int64_t Operand::scratch_bytes() const {
  return is_copy ? aligned(extent_bytes(), kCopyAlignment) : 0;
}

int Operand::alignment() const {
  return alignment_of(is_copy ? nullptr : taken.data);
}

Operands::Operands(const ProductArgs& args, const LibraryShare& share) : adds_out_(args.accumulate) {
  const bool is_narrow = is_f8(args.a->dtype);
  const std::int64_t line_bytes = is_narrow ? kF8Alignment : 1;
  // f8 factors go along k.
  a_ = operand_of(*args.a, {is_narrow ? Lines::kRows : Lines::kEither, line_bytes});
  b_ = operand_of(*args.b, {is_narrow ? Lines::kColumns : Lines::kEither, line_bytes});
  out_ = out_of(args, share, line_bytes);
  if (share.a_scale != Scale::kNone) a_scale_ = scale_of_a(*args.a_scale, share.a_scale);
  if (share.b_scale != Scale::kNone) b_scale_ = scale_of_b(*args.b_scale, share.b_scale);
  if (args.addend == nullptr || !share.rounds) return;
  adds_out_ = is_same_memory(*args.addend, *args.out);
  if (!adds_out_) addend_ = operand_of(*args.addend, {Lines::kRows, line_bytes});
}

std::int64_t Operands::scratch_bytes() const {
  std::int64_t bytes = 0;
  for (const Operand* operand : all()) bytes += operand->scratch_bytes();
  return bytes;
}

std::int64_t Operands::most_bytes() const {
  std::int64_t bytes = 0;
  for (const Operand* operand : all()) bytes = std::max(bytes, operand->extent_bytes());
  return bytes;
}

void Operands::place(std::byte* scratch) {
  for (Operand* operand : {&a_, &b_, &a_scale_, &b_scale_, &addend_, &out_}) {
    if (!operand->is_copy) continue;
    operand->taken.data = scratch;
    scratch += operand->scratch_bytes();
  }
}

Result<void> Operands::copy_in(Stream& stream) const {
  for (const Operand* operand : {&a_, &b_, &a_scale_, &b_scale_, addend()}) {
    if (operand != nullptr && operand->is_copy) TANDEM_TRY(stream.copy(operand->caller, operand->taken));
  }
  return {};
}

Result<void> Operands::copy_out(Stream& stream) const {
  if (!out_.is_copy) return {};
  return stream.copy(out_.taken, out_.caller);
}

}  // namespace tandem::gemm::cuda
