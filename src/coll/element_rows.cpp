#include "coll/element_rows.hpp"

#include <algorithm>
#include <array>

namespace tandem::coll {
namespace {

struct Dim {
  std::int64_t size = 1;
  std::int64_t stride = 1;
  std::int64_t weight = 1;
};

}  // namespace

ElementRows ElementRows::of(const TensorView& view) {
  ElementRows rows;
  rows.data = view.data;
  if (view.numel() == 0) return rows;
  std::array<Dim, kMaxDims> dims;
  int count = 0;
  std::int64_t first = 0;  // in memory, from the view's own first element
  std::int64_t weight = 1;
  for (int d = view.dim() - 1; d >= 0; weight *= view.size(d), --d) {
    if (view.size(d) == 1 || view.stride(d) == 0) continue;
    Dim& dim = dims[static_cast<std::size_t>(count++)];
    dim = {view.size(d), view.stride(d), weight};
    if (dim.stride > 0) continue;
    first += (dim.size - 1) * dim.stride;
    rows.first_index += (dim.size - 1) * weight;
    dim.stride = -dim.stride;
    dim.weight = -dim.weight;
  }
  rows.data = static_cast<const std::byte*>(view.data) + first * size_bytes(view.dtype);
  std::stable_sort(dims.begin(), dims.begin() + count,
                   [](const Dim& x, const Dim& y) { return x.stride > y.stride; });
  rows.num_dims = count;
  rows.num_rows = 1;
  if (count == 0) return rows;
  // From the inside: a row grows while the next dim lies behind it, and so does each dim outside.
  std::array<Dim, kMaxDims> merged;
  int num_merged = 0;
  for (int d = count - 1; d >= 0; --d) {
    const Dim& dim = dims[static_cast<std::size_t>(d)];
    rows.sizes[d] = dim.size;
    rows.weights[d] = dim.weight;
    if (num_merged > 0) {
      Dim& inner = merged[static_cast<std::size_t>(num_merged - 1)];
      if (dim.stride == inner.size * inner.stride) {
        inner.size *= dim.size;
        continue;
      }
    }
    merged[static_cast<std::size_t>(num_merged++)] = dim;
  }
  rows.row_length = merged[0].size;
  rows.step = merged[0].stride;
  rows.num_outer = num_merged - 1;
  for (int d = 0; d < rows.num_outer; ++d) {
    const Dim& outer = merged[static_cast<std::size_t>(num_merged - 1 - d)];
    rows.outer_sizes[d] = outer.size;
    rows.outer_strides[d] = outer.stride;
    rows.num_rows *= outer.size;
  }
  return rows;
}

}  // namespace tandem::coll
