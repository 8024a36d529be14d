#include "graph/interpreter/collectives.hpp"

#include <algorithm>
#include <cstring>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/interpreter/ops.hpp"
#include "graph/ir/ops.hpp"

namespace tandem::graph::interpreter {
namespace {

HostTensor moved(const HostTensor& x, int from, int to) {
  return HostTensor::copy_of(x.view().movedim(from, to), x.dtype());
}

/// This rank's value and all others', in rank order.
Result<std::vector<HostTensor>> exchange(const HostTensor& mine, const Ranks& ranks, std::string_view what) {
  const auto num_bytes = static_cast<std::size_t>(mine.view().size_bytes());
  TANDEM_ASSIGN(const auto all,
                ranks.group.all_gather(std::span(mine.view().data_as<const std::byte>(), num_bytes), what));
  std::vector<HostTensor> values;
  for (const auto& bytes : all) {
    if (bytes.size() != num_bytes) {
      return failf(ErrorCode::kMismatch, "{}: ranks have {} and {} bytes", what, num_bytes, bytes.size());
    }
    HostTensor& value = values.emplace_back(mine.sizes(), mine.dtype());
    std::memcpy(value.view().data, bytes.data(), num_bytes);
  }
  return values;
}

/// Whether the library sums it over ranks.
bool can_sum(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

/// What the library has no collective for: maxima, and sums of integers.
Result<HostTensor> reduce_exchanged(const HostTensor& mine, std::string_view op, const Ranks& ranks) {
  if (op != "sum" && op != "max") {
    return failf(ErrorCode::kUnsupported,
                 "all_reduce '{}' of {} cannot be executed, only sum and max, or sum and avg of floats", op,
                 to_string(mine.dtype()));
  }
  TANDEM_ASSIGN(const auto all, exchange(mine, ranks, "all_reduce of a program"));
  std::vector<double> result = elements<double>(all.front().view());
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const auto other = elements<double>(all[rank].view());
    for (std::size_t i = 0; i < result.size(); ++i) {
      result[i] = op == "sum" ? result[i] + other[i] : std::max(result[i], other[i]);
    }
  }
  return HostTensor::from(std::span<const double>(result), mine.sizes(), mine.dtype());
}

// The functional collectives have their dim in front: (shard, world size, group), (partial, op, world size,
// group) and (value, op, group).

Result<Values> functional_all_gather(const Call& call) {
  TANDEM_ASSIGN(const HostTensor shard, call.tensor(0));
  TANDEM_TRY(check_group(call, 2));
  TANDEM_ASSIGN(HostTensor whole, gather(shard, 0, call.ranks()));
  return one(std::move(whole));
}

Result<Values> functional_reduce_scatter(const Call& call) {
  TANDEM_ASSIGN(const HostTensor partial, call.tensor(0));
  TANDEM_ASSIGN(const auto name, call.text(1));
  TANDEM_ASSIGN(const auto op, reduce_op_of(name));
  TANDEM_TRY(check_group(call, 3));
  TANDEM_ASSIGN(HostTensor part, reduce_scatter(partial, 0, op, call.ranks()));
  return one(std::move(part));
}

Result<Values> functional_all_reduce(const Call& call) {
  TANDEM_ASSIGN(const HostTensor mine, call.tensor(0));
  TANDEM_ASSIGN(const auto op, call.text(1));
  TANDEM_TRY(check_group(call, 2));
  const auto known = reduce_op_of(op);
  if (!known || !can_sum(mine.dtype())) {
    TANDEM_ASSIGN(HostTensor result, reduce_exchanged(mine, op, call.ranks()));
    return one(std::move(result));
  }
  TANDEM_ASSIGN(HostTensor result, all_reduce(mine, *known, call.ranks()));
  return one(std::move(result));
}

// (shard, dim, world size, group) and (partial, op, dim, world size, group)

Result<Values> all_gather_along(const Call& call) {
  TANDEM_ASSIGN(const HostTensor shard, call.tensor(0));
  TANDEM_ASSIGN(const int dim, call.dim(1, shard));
  TANDEM_TRY(check_group(call, 3));
  TANDEM_ASSIGN(HostTensor whole, gather(shard, dim, call.ranks()));
  return one(std::move(whole));
}

Result<Values> reduce_scatter_along(const Call& call) {
  TANDEM_ASSIGN(const HostTensor partial, call.tensor(0));
  TANDEM_ASSIGN(const auto name, call.text(1));
  TANDEM_ASSIGN(const auto op, reduce_op_of(name));
  TANDEM_ASSIGN(const int dim, call.dim(2, partial));
  TANDEM_TRY(check_group(call, 4));
  TANDEM_ASSIGN(HostTensor part, reduce_scatter(partial, dim, op, call.ranks()));
  return one(std::move(part));
}

constexpr Op kOps[] = {
    {graph::op::kFunctionalAllGather, functional_all_gather},
    {graph::op::kFunctionalAllReduce, functional_all_reduce},
    {graph::op::kFunctionalReduceScatter, functional_reduce_scatter},
    {graph::op::kAllGather, all_gather_along},
    {graph::op::kReduceScatter, reduce_scatter_along},
};

}  // namespace

Result<HostTensor> gather(const HostTensor& shard, int dim, const Ranks& ranks) {
  if (shard.sizes().empty()) return failf(ErrorCode::kInvalidArgument, "gathers a number, need a dim");
  const HostTensor front = moved(shard, dim, 0);
  Dims sizes = front.sizes();
  sizes[0] *= ranks.group.size();
  const HostTensor whole(sizes, shard.dtype());
  TANDEM_TRY(coll::all_gather({.input = front.view(), .output = whole.view()}, ranks.group, ranks.stream));
  TANDEM_TRY(ranks.stream.synchronize());
  return moved(whole, 0, dim);
}

Result<HostTensor> reduce_scatter(const HostTensor& partial, int dim, coll::ReduceOp op, const Ranks& ranks) {
  const int world = ranks.group.size();
  if (partial.sizes().empty() || partial.sizes()[dim] % world != 0) {
    return failf(ErrorCode::kInvalidArgument, "scatters dim {} of {} over {} ranks, which do not divide it",
                 dim, to_string(partial.sizes()), world);
  }
  const HostTensor front = moved(partial, dim, 0);
  Dims sizes = front.sizes();
  sizes[0] /= world;
  const HostTensor part(sizes, partial.dtype());
  TANDEM_TRY(coll::reduce_scatter({.input = front.view(), .output = part.view(), .op = op, .bias = {}},
                                  ranks.group, ranks.stream));
  TANDEM_TRY(ranks.stream.synchronize());
  return moved(part, 0, dim);
}

Result<HostTensor> all_reduce(const HostTensor& partial, coll::ReduceOp op, const Ranks& ranks) {
  const HostTensor sum(partial.sizes(), partial.dtype());
  const auto as_row = [](const HostTensor& x) {
    const TensorView& view = x.view();
    return TensorView::contiguous(view.data, {x.numel()}, view.dtype, view.device);
  };
  TANDEM_TRY(coll::all_reduce({.input = as_row(partial), .output = as_row(sum), .op = op, .bias = {}},
                              ranks.group, ranks.stream));
  TANDEM_TRY(ranks.stream.synchronize());
  return sum;
}

Result<coll::ReduceOp> reduce_op_of(std::string_view name) {
  for (const auto op : {coll::ReduceOp::kSum, coll::ReduceOp::kAvg}) {
    if (coll::to_string(op) == name) return op;
  }
  return failf(ErrorCode::kUnsupported, "a scatter of '{}' cannot be executed, only sum and avg", name);
}

Result<void> check_group(const Call& call, std::size_t group) {
  TANDEM_ASSIGN(const auto name, call.text(group));
  if (name == call.ranks().group_name) return {};
  return failf(ErrorCode::kUnsupported, "a collective of group '{}', but the program runs on group '{}'",
               name, call.ranks().group_name);
}

std::span<const Op> collective_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
