#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/interpreter/ops.hpp"

namespace tandem::graph::interpreter {
namespace {

// Ops that choose elements: by index, by order, or one after the other. They go by positions, which count the
// elements of a tensor in row-major order.

using Positions = std::vector<std::int64_t>;

/// The elements of `x` at these positions, of whatever type.
HostTensor taken(const HostTensor& x, const Positions& positions, const Dims& sizes) {
  HostTensor result(sizes, x.dtype());
  const auto bytes = static_cast<std::size_t>(size_bytes(x.dtype()));
  const auto* const from = x.view().data_as<const std::byte>();
  auto* to = result.view().data_as<std::byte>();
  for (const std::int64_t position : positions) {
    std::memcpy(to, from + static_cast<std::size_t>(position) * bytes, bytes);
    to += bytes;
  }
  return result;
}

/// `x` with the elements of `values` at these positions, in turn; added up in f64 if `adds`.
Result<HostTensor> with_elements(const HostTensor& x, const Positions& positions, const HostTensor& values,
                                 bool adds) {
  if (values.dtype() != x.dtype()) {
    return failf(ErrorCode::kInvalidArgument, "writes {} to {}", to_string(values.dtype()),
                 to_string(x.dtype()));
  }
  if (adds) {
    auto sums = elements<double>(x.view());
    const auto addends = elements<double>(values.view());
    for (std::size_t i = 0; i < positions.size(); ++i) {
      sums[static_cast<std::size_t>(positions[i])] += addends[i];
    }
    return HostTensor::from(std::span<const double>(sums), x.sizes(), x.dtype());
  }
  HostTensor result = HostTensor::copy_of(x.view(), x.dtype());
  const auto bytes = static_cast<std::size_t>(size_bytes(x.dtype()));
  auto* const to = result.view().data_as<std::byte>();
  const auto* from = values.view().data_as<const std::byte>();
  for (const std::int64_t position : positions) {
    std::memcpy(to + static_cast<std::size_t>(position) * bytes, from, bytes);
    from += bytes;
  }
  return result;
}

/// The indices in `index` of a dim of `size` elements; those below 0 count from its end.
Result<Positions> indices_of(const HostTensor& index, std::int64_t size) {
  if (is_floating(index.dtype()) || index.dtype() == DType::kBool) {
    return failf(ErrorCode::kUnsupported, "an index of {}, need whole numbers", to_string(index.dtype()));
  }
  Positions indices = elements<std::int64_t>(index.view());
  for (std::int64_t& idx : indices) {
    if (idx < -size || idx >= size) {
      return failf(ErrorCode::kInvalidArgument, "index {} of {} elements", idx, size);
    }
    if (idx < 0) idx += size;
  }
  return indices;
}

/// A dim seen as [outer, size, inner].
struct Along {
  std::int64_t outer = 1, size = 1, inner = 1;

  Along(const Dims& sizes, int dim) : size(sizes.empty() ? 1 : sizes[dim]) {
    for (int d = 0; d < dim; ++d) outer *= sizes[d];
    for (int d = dim + 1; d < sizes.size(); ++d) inner *= sizes[d];
  }
  /// Calls use(position of the first element, stride) for each row along the dim.
  template <class Use>
  void each_row(const Use& use) const {
    for (std::int64_t row = 0; row < outer * inner; ++row) {
      use(row / inner * size * inner + row % inner, inner);
    }
  }
};

/// A dim of `x`, of which a tensor without dims has one too.
Result<int> dim_of(const Call& call, const graph::Argument* argument, const HostTensor& x,
                   int otherwise = 0) {
  return x.sizes().empty() ? Result<int>(0) : call.dim(argument, x, otherwise);
}

// (table, indices): a row of the table for each
Result<Values> embedding(const Call& call) {
  TANDEM_ASSIGN(const HostTensor table, call.tensor(0));
  TANDEM_ASSIGN(const HostTensor index, call.tensor(1));
  if (table.sizes().size() != 2 || index.sizes().size() == kMaxDims) {
    return failf(ErrorCode::kInvalidArgument, "looks {} up in {}", to_string(index.sizes()),
                 to_string(table.sizes()));
  }
  const std::int64_t width = table.sizes()[1];
  TANDEM_ASSIGN(const Positions rows, indices_of(index, table.sizes()[0]));
  Positions positions;
  for (const std::int64_t row : rows) {
    for (std::int64_t i = 0; i < width; ++i) positions.push_back(row * width + i);
  }
  Dims sizes = index.sizes();
  sizes.push_back(width);
  return one(taken(table, positions, sizes));
}

// (gradient, indices, rows of the table, index that has no gradient, whether rows are divided by their count)
Result<Values> embedding_backward(const Call& call) {
  TANDEM_ASSIGN(const HostTensor grad, call.tensor(0));
  TANDEM_ASSIGN(const HostTensor index, call.tensor(1));
  TANDEM_ASSIGN(const std::int64_t num_rows, call.integer(2));
  TANDEM_ASSIGN(const std::int64_t padding, call.integer_or(3, -1));
  TANDEM_ASSIGN(const bool is_divided, call.flag_or(call.argument(4), false));
  if (is_divided) return failf(ErrorCode::kUnsupported, "gradients that are divided by the counts of rows");
  const std::int64_t width = grad.sizes().empty() ? 0 : grad.sizes().back();
  if (num_rows < 0 || grad.numel() != index.numel() * width) {
    return failf(ErrorCode::kInvalidArgument, "gradients of {} for indices of {}", to_string(grad.sizes()),
                 to_string(index.sizes()));
  }
  TANDEM_ASSIGN(const Positions rows, indices_of(index, num_rows));
  const auto addends = elements<double>(grad.view());
  std::vector<double> sums(static_cast<std::size_t>(num_rows * width), 0.0);
  for (std::size_t i = 0; i < addends.size(); ++i) {
    const std::int64_t row = rows[i / static_cast<std::size_t>(width)];
    if (row == padding) continue;
    sums[static_cast<std::size_t>(row * width) + i % static_cast<std::size_t>(width)] += addends[i];
  }
  return one(HostTensor::from(std::span<const double>(sums), {num_rows, width}, grad.dtype()));
}

/// Where, in `x`, the elements of `index` point to along `dim`, other dims being the same.
Result<Positions> pointed_to(const HostTensor& x, int dim, const HostTensor& index) {
  const Dims& sizes = index.sizes();
  bool fits = x.sizes().size() == sizes.size();
  for (int d = 0; fits && d < sizes.size(); ++d) fits = d == dim || sizes[d] <= x.sizes()[d];
  if (!fits) {
    return failf(ErrorCode::kInvalidArgument, "indices of {} along dim {} of {}", to_string(sizes), dim,
                 to_string(x.sizes()));
  }
  TANDEM_ASSIGN(Positions positions, indices_of(index, x.sizes().empty() ? 1 : x.sizes()[dim]));
  for (std::size_t i = 0; i < positions.size(); ++i) {
    std::int64_t position = 0;
    auto rest = static_cast<std::int64_t>(i);
    std::int64_t stride = 1;
    for (int d = sizes.size() - 1; d >= 0; --d) {
      position += (d == dim ? positions[i] : rest % sizes[d]) * stride;
      rest /= sizes[d];
      stride *= x.sizes()[d];
    }
    positions[i] = position;
  }
  return positions;
}

// (x, dim, indices)
Result<Values> gather(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const int dim, dim_of(call, call.argument(1), x));
  TANDEM_ASSIGN(const HostTensor index, call.tensor(2));
  TANDEM_ASSIGN(const Positions positions, pointed_to(x, dim, index));
  return one(taken(x, positions, index.sizes()));
}

/// (x, dim, indices, values), or one number as value
template <bool kAdds>
Result<Values> scatter(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const int dim, dim_of(call, call.argument(1), x));
  TANDEM_ASSIGN(const HostTensor index, call.tensor(2));
  TANDEM_ASSIGN(const Positions positions, pointed_to(x, dim, index));
  const auto* const argument = call.argument(3);
  std::optional<HostTensor> values;
  if (const auto number = argument == nullptr ? std::nullopt : number_of(*argument)) {
    const HostTensor scalar = HostTensor::from(std::span(&*number, 1), {}, x.dtype());
    values = HostTensor::copy_of(broadcast(scalar.view(), index.sizes()), x.dtype());
  } else {
    TANDEM_ASSIGN(const HostTensor all, call.tensor(3));
    // As many of them as there are indices.
    TensorView part = all.view();
    bool fits = part.dim() == index.sizes().size();
    for (int d = 0; fits && d < part.dim(); ++d) {
      fits = index.sizes()[d] <= part.size(d);
      if (fits) part = part.narrow(d, 0, index.sizes()[d]);
    }
    if (!fits) {
      return failf(ErrorCode::kInvalidArgument, "values of {} for indices of {}", to_string(all.sizes()),
                   to_string(index.sizes()));
    }
    values = HostTensor::copy_of(part, all.dtype());
  }
  TANDEM_ASSIGN(HostTensor result, with_elements(x, positions, *values, kAdds));
  return one(std::move(result));
}

// (x, dim, indices of one dim)
Result<Values> index_select(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const int dim, call.dim(1, x));
  TANDEM_ASSIGN(const HostTensor index, call.tensor(2));
  const Along along(x.sizes(), dim);
  TANDEM_ASSIGN(const Positions indices, indices_of(index, along.size));
  Positions positions;
  for (std::int64_t outer = 0; outer < along.outer; ++outer) {
    for (const std::int64_t idx : indices) {
      for (std::int64_t i = 0; i < along.inner; ++i) {
        positions.push_back((outer * along.size + idx) * along.inner + i);
      }
    }
  }
  Dims sizes = x.sizes();
  sizes[dim] = index.numel();
  return one(taken(x, positions, sizes));
}

/// What lists of indices, null for a whole dim, point to: PyTorch's x[i, :, j].
struct Indexed {
  Dims sizes;
  Positions positions;
};

/// Where the dims of the lists, broadcast together, and the whole dims stand in the result.
struct IndexedDims {
  Dims lists;
  int num_before = 0;  ///< whole dims in front of those of the lists
  Dims result;
};

/// The dims of the lists stand where the first indexed dim was, if all of these are neighbours; else in
/// front.
Result<IndexedDims> indexed_dims(const HostTensor& x, const Values& lists) {
  IndexedDims dims;
  std::vector<int> is_at;
  for (int d = 0; d < static_cast<int>(lists.size()); ++d) {
    const auto& list = lists[static_cast<std::size_t>(d)];
    if (!list) continue;
    TANDEM_ASSIGN(dims.lists, broadcast_sizes(dims.lists, list->sizes()));
    is_at.push_back(d);
  }
  const int num_dims = x.sizes().size();
  const int num_whole = num_dims - static_cast<int>(is_at.size());
  if (is_at.empty() || static_cast<int>(lists.size()) > num_dims ||
      num_whole + dims.lists.size() > kMaxDims) {
    return failf(ErrorCode::kUnsupported, "{} lists of indices for {} dims", is_at.size(), num_dims);
  }
  const bool are_neighbours = is_at.back() - is_at.front() + 1 == static_cast<int>(is_at.size());
  if (are_neighbours) dims.num_before = is_at.front();
  for (int d = 0, whole = 0; d < num_dims; ++d) {
    if (std::find(is_at.begin(), is_at.end(), d) != is_at.end()) continue;
    if (whole++ == dims.num_before) {
      for (const std::int64_t size : dims.lists) dims.result.push_back(size);
    }
    dims.result.push_back(x.sizes()[d]);
  }
  if (num_whole == dims.num_before) {
    for (const std::int64_t size : dims.lists) dims.result.push_back(size);
  }
  return dims;
}

/// Truth values as lists of where they are true, one for each of their dims.
Result<Values> where_true(const HostTensor& mask, const Dims& of) {
  if (!(mask.sizes() == of)) {
    return failf(ErrorCode::kInvalidArgument, "a mask of {} for dims of {}", to_string(mask.sizes()),
                 to_string(of));
  }
  const auto truths = elements<std::int64_t>(mask.view());
  std::vector<Positions> lists(static_cast<std::size_t>(of.size()));
  for (std::size_t i = 0; i < truths.size(); ++i) {
    if (truths[i] == 0) continue;
    for (int d = 0; d < of.size(); ++d) {
      lists[static_cast<std::size_t>(d)].push_back(static_cast<std::int64_t>(i) / mask.view().stride(d) %
                                                   of[d]);
    }
  }
  Values all;
  for (const Positions& list : lists) {
    const auto count = static_cast<std::int64_t>(list.size());
    all.emplace_back(HostTensor::from(std::span<const std::int64_t>(list), {count}, DType::kI64));
  }
  return all;
}

/// The lists of argument 1, whole numbers all of them.
Result<Values> index_lists(const Call& call, const HostTensor& x) {
  const auto* const argument = call.argument(1);
  const std::size_t count = argument == nullptr ? 0 : argument->entries().size();
  TANDEM_ASSIGN(const Values given, call.optional_tensors(1, count));
  Values lists;
  for (const auto& list : given) {
    if (!list || list->dtype() != DType::kBool) {
      lists.push_back(list);
      continue;
    }
    Dims of;
    for (int d = 0; d < list->sizes().size(); ++d) {
      const int at = static_cast<int>(lists.size()) + d;
      if (at < x.sizes().size()) of.push_back(x.sizes()[at]);
    }
    TANDEM_ASSIGN(const Values all, where_true(*list, of));
    lists.insert(lists.end(), all.begin(), all.end());
  }
  return lists;
}

/// Each dim of `x` adds to a position: a whole one its own index, another what its list says.
Result<Indexed> indexed(const Call& call, const HostTensor& x) {
  TANDEM_ASSIGN(const Values lists, index_lists(call, x));
  TANDEM_ASSIGN(const IndexedDims dims, indexed_dims(x, lists));
  Indexed result{dims.result, Positions(static_cast<std::size_t>(numel(dims.result)), 0)};
  Dims ones;
  for (int d = 0; d < dims.result.size(); ++d) ones.push_back(1);
  for (int d = 0, whole = 0; d < x.sizes().size(); ++d) {
    const auto place = static_cast<std::size_t>(d);
    const bool is_whole = place >= lists.size() || !lists[place];
    Dims sizes = ones;
    Positions addends(static_cast<std::size_t>(x.sizes()[d]));
    if (is_whole) {
      std::iota(addends.begin(), addends.end(), 0);
      sizes[whole < dims.num_before ? whole : whole + dims.lists.size()] = x.sizes()[d];
      ++whole;
    } else {
      const TensorView wide = broadcast(lists[place]->view(), dims.lists);
      TANDEM_ASSIGN(addends, indices_of(HostTensor::copy_of(wide, lists[place]->dtype()), x.sizes()[d]));
      for (int i = 0; i < dims.lists.size(); ++i) sizes[dims.num_before + i] = dims.lists[i];
    }
    const HostTensor of_dim = HostTensor::from(std::span<const std::int64_t>(addends), sizes, DType::kI64);
    const auto all = elements<std::int64_t>(broadcast(of_dim.view(), dims.result));
    for (std::size_t i = 0; i < all.size(); ++i) result.positions[i] += all[i] * x.view().stride(d);
  }
  return result;
}

Result<Values> index(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const Indexed of, indexed(call, x));
  return one(taken(x, of.positions, of.sizes));
}

// (x, lists, values, whether values are added)
Result<Values> index_put(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const Indexed of, indexed(call, x));
  TANDEM_ASSIGN(const HostTensor values, call.tensor(2));
  TANDEM_ASSIGN(const bool adds, call.flag_or(call.argument(3, "accumulate"), false));
  TANDEM_ASSIGN(const Dims wide, broadcast_sizes(values.sizes(), of.sizes));
  if (!(wide == of.sizes)) {
    return failf(ErrorCode::kInvalidArgument, "writes {} to {} elements", to_string(values.sizes()),
                 to_string(of.sizes));
  }
  const HostTensor all = HostTensor::copy_of(broadcast(values.view(), wide), values.dtype());
  TANDEM_ASSIGN(HostTensor result, with_elements(x, of.positions, all, adds));
  return one(std::move(result));
}

// (x, dims)
Result<Values> flip(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const auto is_turned, call.dims_or_all(1, x));
  Positions positions(static_cast<std::size_t>(x.numel()));
  std::iota(positions.begin(), positions.end(), 0);
  for (int d = 0; d < x.sizes().size(); ++d) {
    if (!is_turned[static_cast<std::size_t>(d)]) continue;
    const Along along(x.sizes(), d);
    for (std::int64_t& position : positions) {
      const std::int64_t at = position / along.inner % along.size;
      position += (along.size - 1 - 2 * at) * along.inner;
    }
  }
  return one(taken(x, positions, x.sizes()));
}

/// The first `count` along a dim, the largest first or last, and where they stood. Equal ones keep their
/// order; a NaN is larger than all numbers.
Values sorted(const HostTensor& x, int dim, bool largest_first, std::int64_t count) {
  const Along along(x.sizes(), dim);
  const auto values = elements<double>(x.view());
  Dims sizes = x.sizes();
  if (!sizes.empty()) sizes[dim] = count;
  Positions positions(static_cast<std::size_t>(numel(sizes)));
  Positions places(positions.size());
  const auto is_larger = [](double a, double b) { return a > b || (a != a && b == b); };
  Positions order(static_cast<std::size_t>(along.size));
  along.each_row([&](std::int64_t first, std::int64_t stride) {
    const auto value = [&](std::int64_t i) { return values[static_cast<std::size_t>(first + i * stride)]; };
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) {
      return largest_first ? is_larger(value(i), value(j)) : is_larger(value(j), value(i));
    });
    const std::int64_t outer = first / (along.size * along.inner);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto to = static_cast<std::size_t>((outer * count + i) * along.inner + first % along.inner);
      places[to] = order[static_cast<std::size_t>(i)];
      positions[to] = first + places[to] * stride;
    }
  });
  return {taken(x, positions, sizes),
          HostTensor::from(std::span<const std::int64_t>(places), sizes, DType::kI64)};
}

// (x, count, dim, whether the largest are wanted)
Result<Values> topk(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const std::int64_t count, call.integer(1));
  TANDEM_ASSIGN(const int dim, dim_of(call, call.argument(2), x, -1));
  TANDEM_ASSIGN(const bool largest, call.flag_or(call.argument(3, "largest"), true));
  if (count < 0 || count > Along(x.sizes(), dim).size) {
    return failf(ErrorCode::kInvalidArgument, "the first {} along dim {} of {}", count, dim,
                 to_string(x.sizes()));
  }
  return sorted(x, dim, largest, count);
}

// (x, dim, whether the largest are first); `stable` has all three by name
Result<Values> sort(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const int dim, dim_of(call, call.argument(1, "dim"), x, -1));
  TANDEM_ASSIGN(const bool largest_first, call.flag_or(call.argument(2, "descending"), false));
  return sorted(x, dim, largest_first, Along(x.sizes(), dim).size);
}

/// Where the largest, or smallest, stands: (x, dim, whether the dim stays). Without a dim, in row-major
/// order.
template <bool kLargest, bool kWithValue>
Result<Values> extreme(const Call& call) {
  TANDEM_ASSIGN(HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const bool keeps_dim, call.flag_or(call.argument(2, "keepdim"), false));
  if (call.argument(1) == nullptr) x = x.with_sizes({x.numel()});
  TANDEM_ASSIGN(const int dim, dim_of(call, call.argument(1), x));
  if (Along(x.sizes(), dim).size == 0) return failf(ErrorCode::kInvalidArgument, "the largest of nothing");
  Values found = sorted(x, dim, kLargest, 1);
  Dims sizes = found[0]->sizes();
  if (!sizes.empty() && !keeps_dim) sizes.erase(dim);
  for (auto& value : found) value = value->with_sizes(sizes);
  if (!kWithValue) found.erase(found.begin());
  return found;
}

// (x, dim): sums of the elements up to each; of integers in 64 bits
Result<Values> cumsum(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const int dim, dim_of(call, call.argument(1), x));
  TANDEM_ASSIGN(const DType dtype,
                call.dtype_or(call.named("dtype"), is_floating(x.dtype()) ? x.dtype() : DType::kI64));
  auto values = elements<double>(x.view());
  const Along along(x.sizes(), dim);
  along.each_row([&](std::int64_t first, std::int64_t stride) {
    for (std::int64_t i = 1; i < along.size; ++i) {
      const auto at = static_cast<std::size_t>(first + i * stride);
      values[at] += values[at - static_cast<std::size_t>(stride)];
    }
  });
  return one(HostTensor::from(std::span<const double>(values), x.sizes(), dtype));
}

constexpr Op kOps[] = {
    {"aten.argmax.default", extreme<true, false>},
    {"aten.argmin.default", extreme<false, false>},
    {"aten.cumsum.default", cumsum},
    {"aten.embedding.default", embedding},
    {"aten.embedding_dense_backward.default", embedding_backward},
    {"aten.flip.default", flip},
    {"aten.gather.default", gather},
    {"aten.index.Tensor", index},
    {"aten.index_put.default", index_put},
    {"aten.index_select.default", index_select},
    {"aten.max.dim", extreme<true, true>},
    {"aten.min.dim", extreme<false, true>},
    {"aten.scatter.src", scatter<false>},
    {"aten.scatter.value", scatter<false>},
    {"aten.scatter_add.default", scatter<true>},
    {"aten.sort.default", sort},
    {"aten.sort.stable", sort},
    {"aten.topk.default", topk},
};

}  // namespace

std::span<const Op> indexing_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
