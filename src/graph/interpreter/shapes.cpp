#include <tandem/base/convert.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/interpreter/ops.hpp"
#include "graph/ir/ops.hpp"

namespace tandem::graph::interpreter {
namespace {

// A strided view, copied, is what all of these make: values have no strides.

Values copied(const TensorView& view) {
  return one(HostTensor::copy_of(view, view.dtype));
}

Result<Values> same(const Call& call) {
  TANDEM_ASSIGN(HostTensor x, call.tensor(0));
  return one(std::move(x));
}

Result<Values> reshape(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(auto shape, call.integers(1));
  TANDEM_ASSIGN(Dims sizes, to_dims(shape));
  for (int d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != -1) continue;
    sizes[d] = 1;
    const std::int64_t rest = numel(sizes);
    sizes[d] = rest == 0 ? 0 : x.numel() / rest;
  }
  if (numel(sizes) != x.numel()) {
    return failf(ErrorCode::kInvalidArgument, "sizes {} do not become {}", to_string(x.sizes()),
                 to_string(sizes));
  }
  return one(x.with_sizes(sizes));
}

Result<Values> permute(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const auto order, call.integers(1));
  const int num_dims = x.sizes().size();
  TensorView view = x.view();
  std::vector<bool> seen(static_cast<std::size_t>(num_dims), false);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::int64_t from = order[i] < 0 ? order[i] + num_dims : order[i];
    if (order.size() != seen.size() || from < 0 || from >= num_dims || seen[static_cast<std::size_t>(from)]) {
      return failf(ErrorCode::kInvalidArgument, "[{}] is no order of {} dims", fmt::join(order, ", "),
                   num_dims);
    }
    seen[static_cast<std::size_t>(from)] = true;
    view.sizes[static_cast<int>(i)] = x.view().size(static_cast<int>(from));
    view.strides[static_cast<int>(i)] = x.view().stride(static_cast<int>(from));
  }
  return copied(view);
}

Result<Values> expand(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const auto shape, call.integers(1));
  TANDEM_ASSIGN(Dims sizes, to_dims(shape));
  const int missing = sizes.size() - x.sizes().size();
  for (int d = std::max(missing, 0); d < sizes.size(); ++d) {
    if (sizes[d] == -1) sizes[d] = x.sizes()[d - missing];
  }
  TANDEM_ASSIGN(const Dims wide, broadcast_sizes(x.sizes(), sizes));
  if (!(wide == sizes)) {
    return failf(ErrorCode::kInvalidArgument, "sizes {} do not expand to {}", to_string(x.sizes()),
                 to_string(sizes));
  }
  return copied(broadcast(x.view(), sizes));
}

Result<Values> repeat(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const auto counts, call.integers(1));
  const int num_dims = static_cast<int>(counts.size());
  const int missing = num_dims - x.sizes().size();
  if (missing < 0 || num_dims > kMaxDims / 2) {
    return failf(ErrorCode::kUnsupported,
                 "repeats sizes {} by {} counts, need as many or more, and at most {}", to_string(x.sizes()),
                 num_dims, kMaxDims / 2);
  }
  // Each dim behind a dim of its copies, which has stride 0.
  TensorView view = x.view();
  view.sizes = view.strides = Dims();
  Dims sizes;
  for (int d = 0; d < num_dims; ++d) {
    const std::int64_t count = counts[static_cast<std::size_t>(d)];
    const std::int64_t size = d < missing ? 1 : x.sizes()[d - missing];
    view.sizes.push_back(count);
    view.strides.push_back(0);
    view.sizes.push_back(size);
    view.strides.push_back(d < missing ? 0 : x.view().stride(d - missing));
    sizes.push_back(count * size);
  }
  return one(HostTensor::copy_of(view, x.dtype()).with_sizes(sizes));
}

Result<Values> unsqueeze(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(std::int64_t dim, call.integer(1));
  const int num_dims = x.sizes().size();
  if (dim < 0) dim += num_dims + 1;
  if (dim < 0 || dim > num_dims || num_dims == kMaxDims) {
    return failf(ErrorCode::kInvalidArgument, "dim {} cannot be added to sizes {}", dim,
                 to_string(x.sizes()));
  }
  Dims sizes = x.sizes();
  sizes.insert(static_cast<int>(dim), 1);
  return one(x.with_sizes(sizes));
}

Result<Values> squeeze(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const int dim, call.dim(1, x));
  Dims sizes = x.sizes();
  if (sizes[dim] == 1) sizes.erase(dim);
  return one(x.with_sizes(sizes));
}

Result<Values> view_dtype(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const DType dtype, call.dtype_or(call.argument(1), x.dtype()));
  if (size_bytes(dtype) != size_bytes(x.dtype())) {
    return failf(ErrorCode::kUnsupported, "views {} as {}, need types of as many bytes", to_string(x.dtype()),
                 to_string(dtype));
  }
  return one(x.with_dtype(dtype));
}

Result<Values> split(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const std::int64_t size, call.integer(1));
  TANDEM_ASSIGN(const int dim, call.dim(2, x));
  if (size < 1) return failf(ErrorCode::kInvalidArgument, "splits into parts of {}, need at least 1", size);
  Values parts;
  for (std::int64_t start = 0; start < x.sizes()[dim]; start += size) {
    const std::int64_t length = std::min(size, x.sizes()[dim] - start);
    parts.emplace_back(HostTensor::copy_of(x.view().narrow(dim, start, length), x.dtype()));
  }
  return parts;
}

Result<Values> cat(const Call& call) {
  TANDEM_ASSIGN(const auto parts, call.tensors(0));
  TANDEM_ASSIGN(const int dim, call.dim(1, parts.front()));
  Dims sizes = parts.front().sizes();
  sizes[dim] = 0;
  for (const HostTensor& part : parts) {
    Dims need = sizes;
    if (part.sizes().size() == sizes.size()) need[dim] = part.sizes()[dim];
    if (!(part.sizes() == need) || part.dtype() != parts.front().dtype()) {
      return failf(ErrorCode::kInvalidArgument, "joins {} to {} along dim {}", to_string(part.view()),
                   to_string(parts.front().view()), dim);
    }
    sizes[dim] += part.sizes()[dim];
  }
  HostTensor whole(sizes, parts.front().dtype());
  std::int64_t start = 0;
  for (const HostTensor& part : parts) {
    const std::int64_t length = part.sizes()[dim];
    TANDEM_TRY(convert(part.view(), whole.view().narrow(dim, start, length)));
    start += length;
  }
  return one(std::move(whole));
}

Result<Values> get_item(const Call& call) {
  TANDEM_ASSIGN(const Values items, call.items(0));
  TANDEM_ASSIGN(const std::int64_t idx, call.integer(1));
  if (idx < 0 || idx >= static_cast<std::int64_t>(items.size())) {
    return failf(ErrorCode::kInvalidArgument, "takes item {} of {}", idx, items.size());
  }
  return Values{items[static_cast<std::size_t>(idx)]};
}

constexpr Op kOps[] = {
    {graph::op::kGetItem, get_item},   {graph::op::kWait, same},
    {graph::op::kUnsafeView, reshape}, {graph::op::kCat, cat},
    {graph::op::kClone, same},         {"aten.expand.default", expand},
    {graph::op::kPermute, permute},    {"aten.repeat.default", repeat},
    {graph::op::kReshape, reshape},    {graph::op::kSplit, split},
    {graph::op::kSqueeze, squeeze},    {graph::op::kUnsqueeze, unsqueeze},
    {graph::op::kView, reshape},       {graph::op::kViewDType, view_dtype},
};

}  // namespace

std::span<const Op> shape_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
