#include "io/element_writer.hpp"

#include <algorithm>
#include <tandem/base/convert.hpp>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::io {
namespace {

constexpr std::int64_t kBlockElements = std::int64_t{1} << 17;

// Converts `view`, which fits in the block, into it and writes it.
Result<void> write_block(WholeFile& file, const TensorView& view, const Tensor& block) {
  const TensorView part = TensorView::contiguous(block.view().data, view.sizes, block.dtype());
  TANDEM_TRY(convert(view, part));
  return file.write(part.data, static_cast<std::size_t>(part.size_bytes()));
}

// Cuts `view` along its first dimension until the pieces fit in the block.
Result<void> write_blocks(WholeFile& file, const TensorView& view, const Tensor& block) {
  if (view.numel() <= kBlockElements) return write_block(file, view, block);
  const std::int64_t elements_per_idx = view.numel() / view.size(0);
  const std::int64_t step = std::max<std::int64_t>(kBlockElements / elements_per_idx, 1);
  for (std::int64_t begin = 0; begin < view.size(0); begin += step) {
    const TensorView part = view.narrow(0, begin, std::min(step, view.size(0) - begin));
    if (part.numel() <= kBlockElements) {
      TANDEM_TRY(write_block(file, part, block));
    } else {
      TANDEM_TRY(write_blocks(file, part.select(0, 0), block));
    }
  }
  return {};
}

}  // namespace

Result<void> check_writable(const TensorView& view) {
  if (view.device.kind != DeviceKind::kCpu) {
    return failf(ErrorCode::kInvalidArgument, "needs host memory, got {}: copy it first", to_string(view));
  }
  if (view.data == nullptr && view.numel() != 0) {
    return failf(ErrorCode::kInvalidArgument, "the view has no memory: {}", to_string(view));
  }
  return {};
}

Result<void> write_elements(WholeFile& file, const TensorView& view, DType dtype) {
  if (view.numel() == 0) return {};
  if (view.dtype == dtype && view.is_contiguous()) {
    return file.write(view.data, static_cast<std::size_t>(view.size_bytes()));
  }
  const Tensor block = Tensor::host({std::min(view.numel(), kBlockElements)}, dtype);
  return write_blocks(file, view, block);
}

}  // namespace tandem::io
