#include "coll/cuda/layer_sum.hpp"

#include <algorithm>

#include "coll/cuda/vectors.hpp"

namespace tandem::coll::cuda {
namespace {

/// Sizes and strides of `view` without dims of size 1, and with dims merged that are one row of elements.
void set_out(const TensorView& view, LayerSum& sum) {
  sum.out = view.data;
  sum.out_dtype = view.dtype;
  sum.num_elements = view.numel();
  int count = 0;
  for (int d = 0; d < view.dim(); ++d) {
    if (view.size(d) == 1) continue;
    if (count > 0 && sum.strides[count - 1] == view.stride(d) * view.size(d)) {
      sum.sizes[count - 1] *= view.size(d);
      sum.strides[count - 1] = view.stride(d);
      continue;
    }
    sum.sizes[count] = view.size(d);
    sum.strides[count] = view.stride(d);
    ++count;
  }
  if (count == 0) sum.sizes[0] = sum.strides[0] = 1;
  sum.num_dims = std::max(count, 1);
}

bool fits_vectors(const LayerSum& sum) {
  const std::int64_t width = vector_elements(sum.in_dtype);
  const std::int64_t out_bytes = std::min<std::int64_t>(width * size_bytes(sum.out_dtype), kVectorBytes);
  const int last = sum.num_dims - 1;
  bool fits = sum.sizes[last] % width == 0 && sum.strides[last] == 1 && is_aligned(sum.out, out_bytes);
  for (int d = 0; d < last; ++d) fits = fits && sum.strides[d] % width == 0;
  for (int r = 0; r < std::min(sum.num_layers, kMaxAddresses); ++r) {
    fits = fits && is_aligned(sum.layers[r]);
  }
  if (sum.bias == nullptr) return fits;
  return fits && sum.bias_stride == 1 && sum.bias_size % width == 0 && is_aligned(sum.bias, out_bytes);
}

/// Everything but the layers' addresses.
LayerSum layer_sum_of(const TensorView& out, const std::optional<TensorView>& bias, ReduceOp op, DType dtype,
                      std::int64_t num_layers) {
  LayerSum sum;
  set_out(out, sum);
  sum.in_dtype = dtype;
  sum.num_layers = static_cast<int>(num_layers);
  sum.divisor = op == ReduceOp::kAvg ? static_cast<float>(num_layers) : 1.0F;
  if (bias) {
    sum.bias = bias->data;
    sum.bias_size = bias->size(0);
    sum.bias_stride = bias->stride(0);
  }
  return sum;
}

}  // namespace

LayerSum layer_sum_of(const ReduceStackArgs& args) {
  LayerSum sum = layer_sum_of(args.out, args.bias, args.op, args.stack.dtype, args.stack.size(0));
  const std::int64_t layer_bytes = sum.num_elements * size_bytes(sum.in_dtype);
  for (int r = 0; r < std::min(sum.num_layers, kMaxAddresses); ++r) {
    sum.layers[r] = static_cast<const std::byte*>(args.stack.data) + r * layer_bytes;
  }
  sum.round_bytes = kMaxAddresses * layer_bytes;
  sum.by_vectors = fits_vectors(sum);
  return sum;
}

LayerSum layer_sum_of(const ReduceLayersArgs& args) {
  LayerSum sum =
      layer_sum_of(args.out, args.bias, args.op, args.dtype, static_cast<std::int64_t>(args.layers.size()));
  std::copy(args.layers.begin(), args.layers.end(), sum.layers);
  sum.by_vectors = fits_vectors(sum);
  return sum;
}

}  // namespace tandem::coll::cuda
