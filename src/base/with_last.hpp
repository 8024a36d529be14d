#pragma once

#include <cstdint>
#include <tandem/base/shape.hpp>
#include <tandem/base/tensor.hpp>

namespace tandem {

/// `sizes`, of one dim at least, with another last one.
[[nodiscard]] inline Dims with_last(Dims sizes, std::int64_t last) {
  sizes[sizes.size() - 1] = last;
  return sizes;
}

/// A 2-D view [rows, last] as these sizes but for the last, whose product is `rows`: the inverse of
/// TensorView::flatten_rows().
[[nodiscard]] inline TensorView unflatten_rows(TensorView view, const Dims& sizes) {
  const std::int64_t row_stride = view.stride(0);
  const std::int64_t last_stride = view.stride(1);
  view.sizes = with_last(sizes, view.size(1));
  view.strides = contiguous_strides(with_last(sizes, 1));
  for (int d = 0; d < view.dim(); ++d) view.strides[d] *= row_stride;
  view.strides[view.dim() - 1] = last_stride;
  return view;
}

}  // namespace tandem
