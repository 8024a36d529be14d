#include <algorithm>
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

// (x, sizes, where each dim of x stands in them)
Result<Values> broadcast_in_dim(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const auto shape, call.integers(1));
  TANDEM_ASSIGN(const auto places, call.integers(2));
  TANDEM_ASSIGN(const Dims sizes, to_dims(shape));
  TensorView view = x.view();
  view.sizes = view.strides = Dims();
  for (const std::int64_t size : sizes) {
    view.sizes.push_back(size);
    view.strides.push_back(0);
  }
  bool fits = static_cast<int>(places.size()) == x.sizes().size();
  for (int d = 0; fits && d < x.sizes().size(); ++d) {
    const std::int64_t place = places[static_cast<std::size_t>(d)];
    fits = place >= 0 && place < sizes.size();
    if (!fits) break;
    const int at = static_cast<int>(place);
    fits = x.sizes()[d] == sizes[at] || x.sizes()[d] == 1;
    if (x.sizes()[d] == sizes[at]) view.strides[at] = x.view().stride(d);
  }
  if (fits) return copied(view);
  return failf(ErrorCode::kInvalidArgument, "sizes {} do not become {}", to_string(x.sizes()),
               to_string(sizes));
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

/// Drops those of the dims in argument 1, all if there is none, that have one element.
Result<Values> squeeze(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const auto is_named, call.dims_or_all(1, x));
  Dims sizes;
  for (int d = 0; d < x.sizes().size(); ++d) {
    if (x.sizes()[d] != 1 || !is_named[static_cast<std::size_t>(d)]) sizes.push_back(x.sizes()[d]);
  }
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

/// Parts of these lengths along `dim`.
Values parts_of(const HostTensor& x, int dim, std::span<const std::int64_t> lengths) {
  Values parts;
  std::int64_t start = 0;
  for (const std::int64_t length : lengths) {
    parts.emplace_back(HostTensor::copy_of(x.view().narrow(dim, start, length), x.dtype()));
    start += length;
  }
  return parts;
}

// (x, length of a part, dim)
Result<Values> split(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const std::int64_t size, call.integer(1));
  TANDEM_ASSIGN(const int dim, call.dim(2, x));
  if (size < 1) return failf(ErrorCode::kInvalidArgument, "splits into parts of {}, need at least 1", size);
  std::vector<std::int64_t> lengths;
  for (std::int64_t start = 0; start < x.sizes()[dim]; start += size) {
    lengths.push_back(std::min(size, x.sizes()[dim] - start));
  }
  return parts_of(x, dim, lengths);
}

// (x, lengths, dim)
Result<Values> split_with_sizes(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const auto lengths, call.integers(1));
  TANDEM_ASSIGN(const int dim, call.dim(2, x));
  std::int64_t rest = x.sizes()[dim];
  for (const std::int64_t length : lengths) {
    if (length < 0 || length > rest) rest = -1;
    if (rest >= 0) rest -= length;
  }
  if (rest == 0) return parts_of(x, dim, lengths);
  return failf(ErrorCode::kInvalidArgument, "splits dim {} of {} into parts of {}", dim, to_string(x.sizes()),
               fmt::join(lengths, ", "));
}

// (x, dim)
Result<Values> unbind(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const int dim, call.dim(1, x));
  Dims sizes = x.sizes();
  sizes.erase(dim);
  Values parts = parts_of(x, dim, std::vector<std::int64_t>(static_cast<std::size_t>(x.sizes()[dim]), 1));
  for (auto& part : parts) part = part->with_sizes(sizes);
  return parts;
}

/// A part of a dim: every step-th element from `start` on.
struct Slice {
  int dim;
  std::int64_t start, step, length;

  [[nodiscard]] TensorView of(const HostTensor& x) const {
    TensorView view = x.view().narrow(dim, start, length == 0 ? 0 : (length - 1) * step + 1);
    view.sizes[dim] = length;
    view.strides[dim] *= step;
    return view;
  }
};

/// From the arguments dim, start, end and step, of which `first` is the first.
Result<Slice> slice_at(const Call& call, std::size_t first, const HostTensor& x) {
  TANDEM_ASSIGN(const int dim, call.dim(first, x));
  const std::int64_t size = x.sizes()[dim];
  TANDEM_ASSIGN(std::int64_t start, call.integer_or(first + 1, 0));
  TANDEM_ASSIGN(std::int64_t end, call.integer_or(first + 2, size));
  TANDEM_ASSIGN(const std::int64_t step, call.integer_or(first + 3, 1));
  if (step < 1) return failf(ErrorCode::kInvalidArgument, "slices by steps of {}, need at least 1", step);
  start = std::clamp<std::int64_t>(start < 0 ? start + size : start, 0, size);
  end = std::clamp<std::int64_t>(end < 0 ? end + size : end, start, size);
  return Slice{dim, start, step, (end - start + step - 1) / step};
}

// (x, dim, start, end, step)
Result<Values> slice(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const Slice of, slice_at(call, 1, x));
  return copied(of.of(x));
}

/// `x` with `part` written to `place`, which is a view of the copy that is returned.
template <class Place>
Result<Values> with_part(const HostTensor& x, const HostTensor& part, const Place& place) {
  const HostTensor copy = HostTensor::copy_of(x.view(), x.dtype());
  const TensorView to = place(copy);
  TANDEM_ASSIGN(const Dims sizes, broadcast_sizes(part.sizes(), to.sizes));
  if (!(sizes == to.sizes)) {
    return failf(ErrorCode::kInvalidArgument, "writes {} to a part of sizes {}", to_string(part.sizes()),
                 to_string(to.sizes));
  }
  TANDEM_TRY(convert(broadcast(part.view(), sizes), to));
  return one(copy);
}

// (x, part, dim, start, end, step)
Result<Values> slice_scatter(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const HostTensor part, call.tensor(1));
  TANDEM_ASSIGN(const Slice of, slice_at(call, 2, x));
  return with_part(x, part, [&](const HostTensor& copy) { return of.of(copy); });
}

/// The slice of one index, (dim, index), without its dim.
Result<TensorView> selected(const Call& call, std::size_t first, const HostTensor& x) {
  TANDEM_ASSIGN(const int dim, call.dim(first, x));
  TANDEM_ASSIGN(std::int64_t idx, call.integer(first + 1));
  const std::int64_t size = x.sizes()[dim];
  if (idx < 0) idx += size;
  if (idx < 0 || idx >= size) {
    return failf(ErrorCode::kInvalidArgument, "index {} of dim {} of {}", idx, dim, to_string(x.sizes()));
  }
  TensorView view = x.view().narrow(dim, idx, 1);
  view.sizes.erase(dim);
  view.strides.erase(dim);
  return view;
}

// (x, dim, index)
Result<Values> select(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const TensorView view, selected(call, 1, x));
  return copied(view);
}

// (x, part, dim, index)
Result<Values> select_scatter(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const HostTensor part, call.tensor(1));
  TANDEM_TRY(selected(call, 2, x));
  return with_part(x, part, [&](const HostTensor& copy) { return *selected(call, 2, copy); });
}

// (x, [before and after the last dim, before and after the one before it, ...], number)
Result<Values> pad(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const auto widths, call.integers(1));
  TANDEM_ASSIGN(const double number, call.number_or(call.argument(2, "value"), 0));
  const int num_dims = x.sizes().size();
  Dims sizes = x.sizes();
  TensorView from = x.view();
  std::vector<std::int64_t> starts(static_cast<std::size_t>(num_dims), 0);
  if (widths.size() % 2 != 0 || widths.size() / 2 > starts.size()) {
    return failf(ErrorCode::kInvalidArgument, "pads {} dims by {} numbers", num_dims, widths.size());
  }
  for (std::size_t i = 0; i < widths.size() / 2; ++i) {
    const int dim = num_dims - 1 - static_cast<int>(i);
    const std::int64_t before = widths[2 * i];
    const std::int64_t after = widths[2 * i + 1];
    const std::int64_t dropped = std::max<std::int64_t>(-before, 0) + std::max<std::int64_t>(-after, 0);
    if (dropped > sizes[dim]) {
      return failf(ErrorCode::kInvalidArgument, "drops {} of dim {} of {}", dropped, dim,
                   to_string(x.sizes()));
    }
    from = from.narrow(dim, std::max<std::int64_t>(-before, 0), sizes[dim] - dropped);
    starts[static_cast<std::size_t>(dim)] = std::max<std::int64_t>(before, 0);
    sizes[dim] += before + after;
  }
  const HostTensor filling = HostTensor::from(std::span(&number, 1), {}, x.dtype());
  const HostTensor padded = HostTensor::copy_of(broadcast(filling.view(), sizes), x.dtype());
  TensorView to = padded.view();
  for (int d = 0; d < num_dims; ++d) to = to.narrow(d, starts[static_cast<std::size_t>(d)], from.size(d));
  TANDEM_TRY(convert(from, to));
  return one(padded);
}

/// The lower (x, diagonal) or upper triangle; zero elsewhere.
template <bool kUpper>
Result<Values> triangle(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const std::int64_t diagonal, call.integer_or(1, 0));
  const int num_dims = x.sizes().size();
  if (num_dims < 2) return failf(ErrorCode::kInvalidArgument, "a triangle of {}", to_string(x.sizes()));
  const std::int64_t columns = x.sizes()[num_dims - 1];
  const std::int64_t rows = x.sizes()[num_dims - 2];
  HostTensor copy = HostTensor::copy_of(x.view(), x.dtype());
  const std::int64_t bytes = size_bytes(x.dtype());
  auto* const data = copy.view().data_as<std::byte>();
  for (std::int64_t i = 0; i < copy.numel(); ++i) {
    const std::int64_t beyond = i % columns - i / columns % rows - diagonal;
    if (kUpper ? beyond < 0 : beyond > 0) std::fill_n(data + i * bytes, bytes, std::byte{0});
  }
  return one(std::move(copy));
}

/// The order in which argument 1 and argument 2 have changed places; of two dims, if there are none.
Result<Values> transpose(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TensorView view = x.view();
  if (view.dim() < 2) return one(x);
  TANDEM_ASSIGN(const int first, call.dim(1, x, 0));
  TANDEM_ASSIGN(const int second, call.dim(2, x, 1));
  std::swap(view.sizes[first], view.sizes[second]);
  std::swap(view.strides[first], view.strides[second]);
  return copied(view);
}

Result<Values> joined(const std::vector<HostTensor>& parts, int dim) {
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

Result<Values> cat(const Call& call) {
  TANDEM_ASSIGN(const auto parts, call.tensors(0));
  TANDEM_ASSIGN(const int dim, call.dim(1, parts.front()));
  return joined(parts, dim);
}

// (parts, dim of the result)
Result<Values> stack(const Call& call) {
  TANDEM_ASSIGN(auto parts, call.tensors(0));
  TANDEM_ASSIGN(std::int64_t dim, call.integer_or(1, 0));
  const int num_dims = parts.front().sizes().size();
  if (dim < 0) dim += num_dims + 1;
  for (HostTensor& part : parts) {
    if (dim < 0 || dim > part.sizes().size() || num_dims == kMaxDims) {
      return failf(ErrorCode::kInvalidArgument, "stacks {} along dim {}", to_string(part.sizes()), dim);
    }
    Dims sizes = part.sizes();
    sizes.insert(static_cast<int>(dim), 1);
    part = part.with_sizes(sizes);
  }
  return joined(parts, static_cast<int>(dim));
}

/// What is written to argument 0: argument 1, in its sizes and type.
Result<Values> copy(const Call& call) {
  TANDEM_ASSIGN(const HostTensor to, call.tensor(0));
  TANDEM_ASSIGN(const HostTensor from, call.tensor(1));
  return with_part(to, from, [](const HostTensor& whole) { return whole.view(); });
}

/// The same in place. Values are not written, so that a later node must not read what argument 0 was.
Result<Values> copy_in_place(const Call& call) {
  const graph::Argument* const to = call.argument(0);
  if (to != nullptr && to->node() != nullptr) {
    for (const graph::Node* user : to->node()->users()) {
      if (user == &call.node() || graph::Graph::is_before(*user, call.node())) continue;
      if (user->kind() == graph::NodeKind::kOutput) continue;
      return failf(ErrorCode::kUnsupported, "writes '{}', which '{}' reads later", to->node()->name(),
                   user->name());
    }
  }
  return copy(call);
}

Result<Values> all_waited_for(const Call& call) {
  TANDEM_ASSIGN(auto values, call.tensors(0));
  return Values(values.begin(), values.end());
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
    {graph::op::kGetItem, get_item},
    {graph::op::kWait, same},
    {"_c10d_functional.wait_tensors.default", all_waited_for},
    {graph::op::kUnsafeView, reshape},
    {"aten.alias.default", same},
    {graph::op::kCat, cat},
    {graph::op::kClone, same},
    {"aten.constant_pad_nd.default", pad},
    {"aten.contiguous.default", same},
    {"aten.copy.default", copy},
    {"aten.copy_.default", copy_in_place},
    {"aten.detach.default", same},
    {"aten.expand.default", expand},
    {"aten.lift_fresh_copy.default", same},
    {graph::op::kPermute, permute},
    {"aten.repeat.default", repeat},
    {graph::op::kReshape, reshape},
    {"aten.select.int", select},
    {"aten.select_scatter.default", select_scatter},
    {graph::op::kSlice, slice},
    {"aten.slice_scatter.default", slice_scatter},
    {graph::op::kSplit, split},
    {graph::op::kSplitSizes, split_with_sizes},
    {"aten.squeeze.default", squeeze},
    {graph::op::kSqueeze, squeeze},
    {"aten.squeeze.dims", squeeze},
    {"aten.stack.default", stack},
    {"aten.t.default", transpose},
    {"aten.transpose.int", transpose},
    {"aten.tril.default", triangle<false>},
    {"aten.triu.default", triangle<true>},
    {"aten.unbind.int", unbind},
    {graph::op::kUnsqueeze, unsqueeze},
    {graph::op::kView, reshape},
    {graph::op::kViewDType, view_dtype},
    {"prims.broadcast_in_dim.default", broadcast_in_dim},
    {"prims.device_put.default", same},
};

}  // namespace

std::span<const Op> shape_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
