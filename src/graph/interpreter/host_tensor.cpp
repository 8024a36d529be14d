#include "graph/interpreter/host_tensor.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/format.hpp"

namespace tandem::graph::interpreter {
namespace {

template <class T>
constexpr DType kDTypeOf = std::is_same_v<T, float>    ? DType::kF32
                           : std::is_same_v<T, double> ? DType::kF64
                                                       : DType::kI64;

/// convert() between host memories of equal shape, which cannot fail.
void convert_all(const TensorView& from, const TensorView& to) {
  const auto converted = convert(from, to);
  assert(converted);
  static_cast<void>(converted);
}

}  // namespace

HostTensor::HostTensor(const Dims& sizes, DType dtype) {
  const Tensor memory = Tensor::host(sizes, dtype);
  view_ = memory.view();
  owner_ = memory.owner();
}

HostTensor HostTensor::copy_of(const TensorView& view, DType dtype) {
  HostTensor copy(view.sizes, dtype);
  convert_all(view, copy.view_);
  return copy;
}

template <class T>
HostTensor HostTensor::from(std::span<const T> values, const Dims& sizes, DType dtype) {
  // Read only: convert() takes both ends as views.
  return copy_of(TensorView::contiguous(const_cast<T*>(values.data()), sizes, kDTypeOf<T>), dtype);
}
template HostTensor HostTensor::from(std::span<const float>, const Dims&, DType);
template HostTensor HostTensor::from(std::span<const double>, const Dims&, DType);
template HostTensor HostTensor::from(std::span<const std::int64_t>, const Dims&, DType);

HostTensor HostTensor::with_sizes(const Dims& sizes) const {
  assert(tandem::numel(sizes) == numel());
  HostTensor other = *this;
  other.view_ = TensorView::contiguous(view_.data, sizes, dtype());
  return other;
}

HostTensor HostTensor::with_dtype(DType dtype) const {
  assert(size_bytes(dtype) == size_bytes(view_.dtype));
  HostTensor other = *this;
  other.view_.dtype = dtype;
  return other;
}

bool is_same(const HostTensor& x, const HostTensor& y) {
  return x.sizes() == y.sizes() && x.dtype() == y.dtype() &&
         (x.numel() == 0 ||
          std::memcmp(x.view().data, y.view().data, static_cast<std::size_t>(x.view().size_bytes())) == 0);
}

template <class T>
std::vector<T> elements(const TensorView& view) {
  std::vector<T> values(static_cast<std::size_t>(view.numel()));
  convert_all(view, TensorView::contiguous(values.data(), view.sizes, kDTypeOf<T>));
  return values;
}
template std::vector<float> elements(const TensorView&);
template std::vector<double> elements(const TensorView&);
template std::vector<std::int64_t> elements(const TensorView&);

TensorView broadcast(const TensorView& view, const Dims& sizes) {
  TensorView wide = view;
  wide.sizes = sizes;
  wide.strides = sizes;
  const int missing = sizes.size() - view.dim();
  for (int d = 0; d < sizes.size(); ++d) {
    const bool is_repeated = d < missing || view.size(d - missing) != sizes[d];
    wide.strides[d] = is_repeated ? 0 : view.stride(d - missing);
  }
  return wide;
}

Result<Dims> broadcast_sizes(const Dims& x, const Dims& y) {
  const Dims& longer = x.size() >= y.size() ? x : y;
  const Dims& shorter = x.size() >= y.size() ? y : x;
  Dims sizes = longer;
  for (int d = 0; d < shorter.size(); ++d) {
    std::int64_t& size = sizes[longer.size() - shorter.size() + d];
    if (size != shorter[d] && size != 1 && shorter[d] != 1) {
      return failf(ErrorCode::kInvalidArgument, "sizes {} and {} do not broadcast", to_string(x),
                   to_string(y));
    }
    if (size == 1) size = shorter[d];
  }
  return sizes;
}

}  // namespace tandem::graph::interpreter
