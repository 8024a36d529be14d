#include <tandem/device/device.hpp>
#include <tandem/fused/layout.hpp>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem {
namespace {

Result<void> check_permutation(const TensorView& t, std::span<const int> perm) {
  unsigned seen = 0;
  for (const int dim : perm) {
    if (dim >= 0 && dim < t.dim()) seen |= 1U << static_cast<unsigned>(dim);
  }
  if (static_cast<int>(perm.size()) != t.dim() || seen != (1U << static_cast<unsigned>(t.dim())) - 1) {
    return failf(ErrorCode::kInvalidArgument,
                 "make_contiguous_for_perm: got the permutation [{}] for {}, need each of its {} dims once",
                 fmt::join(perm, ", "), to_string(t.sizes), t.dim());
  }
  return {};
}

Result<Restrided> bring_to_front(const char* who, const TensorView& t, int dim, Stream& stream) {
  if (dim < 0 || dim >= t.dim()) {
    return failf(ErrorCode::kInvalidArgument, "{}: got dim {} for {}, need 0 to {}", who, dim,
                 to_string(t.sizes), t.dim() - 1);
  }
  int perm[kMaxDims] = {dim};
  int num_dims = 1;
  for (int d = 0; d < t.dim(); ++d) {
    if (d != dim) perm[num_dims++] = d;
  }
  return make_contiguous_for_perm(t, std::span<const int>(perm, static_cast<std::size_t>(num_dims)), stream);
}

}  // namespace

Result<Restrided> make_contiguous_for_perm(const TensorView& t, std::span<const int> perm, Stream& stream) {
  TANDEM_TRY(check_permutation(t, perm));
  TensorView permuted = t;
  for (int d = 0; d < t.dim(); ++d) {
    permuted.sizes[d] = t.size(perm[static_cast<std::size_t>(d)]);
    permuted.strides[d] = t.stride(perm[static_cast<std::size_t>(d)]);
  }
  if (permuted.is_contiguous()) return Restrided{t, {}};

  TANDEM_ASSIGN(Tensor storage, stream.device().allocate_tensor(permuted.sizes, t.dtype));
  TANDEM_TRY(stream.copy(permuted, storage.view()));
  TensorView view = t;
  view.data = storage.view().data;
  view.is_read_only = false;
  for (int d = 0; d < t.dim(); ++d)
    view.strides[perm[static_cast<std::size_t>(d)]] = storage.view().stride(d);
  return Restrided{view, std::move(storage)};
}

Result<Restrided> restride_for_all_gather_matmul(const TensorView& a, int gather_dim, Stream& stream) {
  return bring_to_front("restride_for_all_gather_matmul", a, gather_dim, stream);
}

Result<Restrided> restride_for_matmul_reduce_scatter(const TensorView& a, int scatter_dim, Stream& stream) {
  return bring_to_front("restride_for_matmul_reduce_scatter", a, scatter_dim, stream);
}

Result<Tensor> make_tensor(const Layout& layout, DType dtype, Device& device) {
  const auto refused = [&] {
    return failf(
        ErrorCode::kInvalidArgument,
        "make_tensor: got sizes {} and strides {} of {}, need as many of each, none negative, and at "
        "most 2^62 bytes",
        to_string(layout.sizes), to_string(layout.strides), to_string(dtype));
  };
  if (layout.sizes.size() != layout.strides.size()) return refused();
  std::int64_t num_elements = 1;
  bool is_empty = false;
  for (int d = 0; d < layout.sizes.size(); ++d) {
    if (layout.sizes[d] < 0 || layout.strides[d] < 0) return refused();
    is_empty = is_empty || layout.sizes[d] == 0;
  }
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;
  for (int d = 0; d < layout.sizes.size() && !is_empty; ++d) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(layout.sizes[d] - 1, layout.strides[d], &reach) ||
        __builtin_add_overflow(num_elements, reach, &num_elements) ||
        num_elements > kMostBytes / size_bytes(dtype)) {
      return refused();
    }
  }
  TANDEM_ASSIGN(Tensor storage, device.allocate_tensor({is_empty ? 0 : num_elements}, dtype));
  TensorView view = storage.view();
  view.sizes = layout.sizes;
  view.strides = layout.strides;
  return Tensor(view, storage.owner());
}

}  // namespace tandem
