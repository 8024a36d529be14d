#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <tandem/base/shape.hpp>

namespace tandem {
namespace {

/// More than any memory has, and so few that their bytes can be counted.
constexpr std::int64_t kMostElements = std::numeric_limits<std::int64_t>::max() / 8;

}  // namespace

std::int64_t Dims::erase(int idx) {
  const std::int64_t value = (*this)[idx];
  std::copy(values_.begin() + idx + 1, values_.begin() + size_, values_.begin() + idx);
  --size_;
  return value;
}

void Dims::insert(int idx, std::int64_t value) {
  assert(idx >= 0 && idx <= size_ && size_ < kMaxDims);
  std::copy_backward(values_.begin() + idx, values_.begin() + size_, values_.begin() + size_ + 1);
  values_[static_cast<std::size_t>(idx)] = value;
  ++size_;
}

std::string to_string(const Dims& dims) {
  return fmt::format("[{}]", fmt::join(dims.begin(), dims.end(), ", "));
}

std::int64_t numel(const Dims& sizes) {
  std::int64_t product = 1;
  bool overflow = false;
  for (const std::int64_t size : sizes) {
    if (size == 0) return 0;
    overflow = __builtin_mul_overflow(product, size, &product) || overflow;
  }
  return overflow ? kMostElements : std::clamp(product, -kMostElements, kMostElements);
}

Dims contiguous_strides(const Dims& sizes) {
  Dims strides = sizes;
  std::int64_t stride = 1;
  for (int d = sizes.size() - 1; d >= 0; --d) {
    strides[d] = stride;
    if (__builtin_mul_overflow(stride, sizes[d], &stride)) stride = kMostElements;
  }
  return strides;
}

}  // namespace tandem
