#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <stdexcept>
#include <tandem/base/tensor.hpp>
#include <utility>

#include "base/byte_size.hpp"
#include "base/memory_pages.hpp"

namespace tandem {
namespace {

/// What is thrown where no Result is returned.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::string text) : text_(std::move(text)) {}
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

}  // namespace

std::string to_string(DeviceId id) {
  return fmt::format("{}:{}", id.kind == DeviceKind::kCpu ? "cpu" : "cuda", id.index);
}

TensorView TensorView::contiguous(void* data, const Dims& sizes, DType dtype, DeviceId device) {
  return {data, sizes, contiguous_strides(sizes), dtype, device};
}

TensorView TensorView::read_only(const void* data, const Dims& sizes, DType dtype, DeviceId device) {
  TensorView view = contiguous(const_cast<void*>(data), sizes, dtype, device);
  view.is_read_only = true;
  return view;
}

bool TensorView::is_contiguous() const {
  if (numel() == 0) return true;
  std::int64_t expected = 1;
  for (int d = dim() - 1; d >= 0; --d) {
    if (sizes[d] != 1 && strides[d] != expected) return false;
    if (__builtin_mul_overflow(expected, sizes[d], &expected)) return false;
  }
  return true;
}

TensorView TensorView::movedim(int from, int to) const {
  TensorView moved = *this;
  moved.sizes.insert(to, moved.sizes.erase(from));
  moved.strides.insert(to, moved.strides.erase(from));
  return moved;
}

TensorView TensorView::narrow(int d, std::int64_t start, std::int64_t length) const {
  assert(start >= 0 && length >= 0 && start + length <= sizes[d]);
  TensorView part = *this;
  part.sizes[d] = length;
  if (length > 0) part.data = static_cast<std::byte*>(data) + start * strides[d] * tandem::size_bytes(dtype);
  return part;
}

TensorView TensorView::select(int d, std::int64_t idx) const {
  TensorView part = narrow(d, idx, 1);
  part.sizes.erase(d);
  part.strides.erase(d);
  return part;
}

bool TensorView::can_flatten_rows() const {
  if (dim() < 1) return false;
  if (numel() == 0) return true;
  // Merging the leading dims needs each stride to be the next one times the next size; size-1 dims do not
  // matter.
  std::optional<std::int64_t> expected;
  for (int d = dim() - 2; d >= 0; --d) {
    if (sizes[d] == 1) continue;
    if (expected && strides[d] != *expected) return false;
    expected = strides[d] * sizes[d];
  }
  return true;
}

TensorView TensorView::flatten_rows() const {
  assert(can_flatten_rows());
  TensorView flat = *this;
  std::int64_t rows = 1;
  std::int64_t row_stride = sizes.back();
  for (int d = dim() - 2; d >= 0; --d) {
    if (sizes[d] != 1 && rows == 1) row_stride = strides[d];
    rows *= sizes[d];
  }
  flat.sizes = {rows, sizes.back()};
  flat.strides = {row_stride, strides.back()};
  return flat;
}

std::string to_string(const TensorView& view) {
  return fmt::format("{} {} strides {} on {}", to_string(view.dtype), to_string(view.sizes),
                     to_string(view.strides), to_string(view.device));
}

Tensor Tensor::host(const Dims& sizes, DType dtype) {
  const auto num_bytes = byte_size(sizes, dtype, "Tensor::host");
  if (!num_bytes) throw std::length_error(num_bytes.error().text());
  auto data = allocate_pages("Tensor::host", *num_bytes);
  if (!data) throw OutOfMemory(std::move(data).error().text());
  std::shared_ptr<void> owner(*data, std::free);
  std::memset(*data, 0, static_cast<std::size_t>(*num_bytes));
  return {TensorView::contiguous(*data, sizes, dtype), std::move(owner)};
}

}  // namespace tandem
