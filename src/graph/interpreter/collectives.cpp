#include "graph/interpreter/collectives.hpp"

#include <algorithm>
#include <numeric>
#include <tandem/base/convert.hpp>
#include <tandem/base/shard.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/interpreter/elementwise.hpp"
#include "graph/interpreter/ops.hpp"
#include "graph/ir/groups.hpp"
#include "graph/ir/ops.hpp"
#include "graph/ir/shards.hpp"

namespace tandem::graph::interpreter {
namespace {

HostTensor moved(const HostTensor& x, int from, int to) {
  return HostTensor::copy_of(x.view().movedim(from, to), x.dtype());
}

/// Whether the library sums it over ranks.
bool can_sum(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

/// Those of the group that a collective names. Errors: kUnsupported for one of which nobody knows the size.
Result<Team> team_of(const Call& call) {
  const Ranks& ranks = call.ranks();
  const std::string* const name = graph::group_of(call.node());
  if (name == nullptr) return failf(ErrorCode::kInvalidArgument, "names no group");
  if (*name == ranks.group_name) return Team(ranks);
  const auto other = ranks.other_groups.find(*name);
  if (other != ranks.other_groups.end() && other->second > 0) return Team(ranks, other->second);
  return failf(
      ErrorCode::kUnsupported,
      "a collective of group '{}', of which the file does not say how many ranks it has; capture the "
      "program again with tandem.torch.capture_graphs()",
      *name);
}

/// The elements of all ranks' values, in rank order.
template <class T>
Result<std::vector<std::vector<T>>> exchanged(const HostTensor& mine, const Team& team) {
  TANDEM_ASSIGN(const HostTensor whole, gather(mine.with_sizes({mine.numel()}), 0, team));
  std::vector<std::vector<T>> all;
  for (std::int64_t rank = 0; rank < team.size(); ++rank) {
    all.push_back(elements<T>(whole.view().narrow(0, rank * mine.numel(), mine.numel())));
  }
  return all;
}

/// The op of a name, or null.
template <class T>
T (*reduction_of(std::string_view op))
(T, T) {
  if (op == "sum") return [](T x, T y) { return x + y; };
  if (op == "product") return [](T x, T y) { return x * y; };
  if (op == "max") return [](T x, T y) { return std::max(x, y); };
  if (op == "min") return [](T x, T y) { return std::min(x, y); };
  return nullptr;
}

/// What the library has no collective for: maxima, minima and products, and all of integers.
Result<HostTensor> reduce_exchanged(const HostTensor& mine, std::string_view op, const Team& team) {
  return with_element_type(mine.dtype(), [&](auto zero) -> Result<HostTensor> {
    using T = decltype(zero);
    const auto reduce = reduction_of<T>(op);
    if (reduce == nullptr) {
      return failf(
          ErrorCode::kUnsupported,
          "all_reduce '{}' of {} cannot be executed, only sum, product, max and min, or avg of floats", op,
          to_string(mine.dtype()));
    }
    TANDEM_ASSIGN(auto all, exchanged<T>(mine, team));
    std::vector<T>& result = all.front();
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      for (std::size_t i = 0; i < result.size(); ++i) result[i] = reduce(result[i], all[rank][i]);
    }
    return HostTensor::from(std::span<const T>(result), mine.sizes(), mine.dtype());
  });
}

// The functional collectives have their dim in front: (shard, world size, group), (partial, op, world size,
// group) and (value, op, group).

Result<Values> functional_all_gather(const Call& call) {
  TANDEM_ASSIGN(const HostTensor shard, call.tensor(0));
  TANDEM_ASSIGN(const Team team, team_of(call));
  TANDEM_ASSIGN(HostTensor whole, gather(shard, 0, team));
  return one(std::move(whole));
}

Result<Values> functional_reduce_scatter(const Call& call) {
  TANDEM_ASSIGN(const HostTensor partial, call.tensor(0));
  TANDEM_ASSIGN(const auto name, call.text(1));
  TANDEM_ASSIGN(const auto op, reduce_op_of(name));
  TANDEM_ASSIGN(const Team team, team_of(call));
  TANDEM_ASSIGN(HostTensor part, reduce_scatter(partial, 0, op, team));
  return one(std::move(part));
}

Result<HostTensor> reduced(const HostTensor& mine, std::string_view op, const Team& team) {
  const auto known = reduce_op_of(op);
  if (!known || !can_sum(mine.dtype())) return reduce_exchanged(mine, op, team);
  return all_reduce(mine, *known, team);
}

Result<Values> functional_all_reduce(const Call& call) {
  TANDEM_ASSIGN(const HostTensor mine, call.tensor(0));
  TANDEM_ASSIGN(const auto op, call.text(1));
  TANDEM_ASSIGN(const Team team, team_of(call));
  TANDEM_ASSIGN(HostTensor result, reduced(mine, op, team));
  return one(std::move(result));
}

// The coalesced ones take a list of tensors, and make one.

Result<Values> coalesced_all_gather(const Call& call) {
  TANDEM_ASSIGN(const auto shards, call.tensors(0));
  TANDEM_ASSIGN(const Team team, team_of(call));
  Values wholes;
  for (const HostTensor& shard : shards) {
    TANDEM_ASSIGN(wholes.emplace_back(), gather(shard, 0, team));
  }
  return wholes;
}

Result<Values> coalesced_reduce_scatter(const Call& call) {
  TANDEM_ASSIGN(const auto partials, call.tensors(0));
  TANDEM_ASSIGN(const auto name, call.text(1));
  TANDEM_ASSIGN(const auto op, reduce_op_of(name));
  TANDEM_ASSIGN(const Team team, team_of(call));
  Values parts;
  for (const HostTensor& partial : partials) {
    TANDEM_ASSIGN(parts.emplace_back(), reduce_scatter(partial, 0, op, team));
  }
  return parts;
}

Result<Values> coalesced_all_reduce(const Call& call) {
  TANDEM_ASSIGN(const auto all, call.tensors(0));
  TANDEM_ASSIGN(const auto op, call.text(1));
  TANDEM_ASSIGN(const Team team, team_of(call));
  Values results;
  for (const HostTensor& mine : all) {
    TANDEM_ASSIGN(results.emplace_back(), reduced(mine, op, team));
  }
  return results;
}

// (value, rank whose value it becomes, group)
Result<Values> broadcast_from(const Call& call) {
  TANDEM_ASSIGN(const HostTensor mine, call.tensor(0));
  TANDEM_ASSIGN(const std::int64_t source, call.integer(1));
  TANDEM_ASSIGN(const Team team, team_of(call));
  if (source < 0 || source >= team.size()) {
    return failf(ErrorCode::kInvalidArgument, "the value of rank {} of {}", source, team.size());
  }
  TANDEM_ASSIGN(const HostTensor whole, gather(mine.with_sizes({mine.numel()}), 0, team));
  const TensorView part = whole.view().narrow(0, source * mine.numel(), mine.numel());
  return one(HostTensor::copy_of(part, mine.dtype()).with_sizes(mine.sizes()));
}

/// (rows, rows from each rank, rows for each rank, group). All ranks run one program, and so send the same
/// numbers of rows: a rank gets as many rows from each.
Result<Values> all_to_all(const Call& call) {
  TANDEM_ASSIGN(const HostTensor rows, call.tensor(0));
  TANDEM_ASSIGN(const auto from, call.integers(1));
  TANDEM_ASSIGN(const auto to, call.integers(2));
  TANDEM_ASSIGN(const Team team, team_of(call));
  const auto world = static_cast<std::size_t>(team.size());
  const auto rank = static_cast<std::size_t>(team.rank());
  const bool fits =
      !rows.sizes().empty() && to.size() == world && from.size() == world &&
      std::all_of(to.begin(), to.end(), [](std::int64_t count) { return count >= 0; }) &&
      std::accumulate(to.begin(), to.end(), std::int64_t{0}) == rows.sizes()[0] &&
      std::all_of(from.begin(), from.end(), [&](std::int64_t count) { return count == to[rank]; });
  if (!fits) {
    return failf(ErrorCode::kInvalidArgument,
                 "sends [{}] rows of {} to {} ranks, of which rank {} takes [{}]", fmt::join(to, ", "),
                 to_string(rows.sizes()), world, rank, fmt::join(from, ", "));
  }
  TANDEM_ASSIGN(const HostTensor whole, gather(rows, 0, team));
  Dims sizes = rows.sizes();
  sizes[0] = to[rank] * team.size();
  const HostTensor received(sizes, rows.dtype());
  const std::int64_t mine = std::accumulate(to.begin(), to.begin() + team.rank(), std::int64_t{0});
  for (std::int64_t other = 0; other < team.size(); ++other) {
    TANDEM_TRY(convert(whole.view().narrow(0, other * rows.sizes()[0] + mine, to[rank]),
                       received.view().narrow(0, other * to[rank], to[rank])));
  }
  return one(received);
}

// (shard, dim, world size, group) and (partial, op, dim, world size, group)

Result<Values> all_gather_along(const Call& call) {
  TANDEM_ASSIGN(const HostTensor shard, call.tensor(0));
  TANDEM_ASSIGN(const int dim, call.dim(1, shard));
  TANDEM_ASSIGN(const Team team, team_of(call));
  TANDEM_ASSIGN(HostTensor whole, gather(shard, dim, team, graph::gather_size_of(call.node())));
  return one(std::move(whole));
}

Result<Values> reduce_scatter_along(const Call& call) {
  TANDEM_ASSIGN(const HostTensor partial, call.tensor(0));
  TANDEM_ASSIGN(const auto name, call.text(1));
  TANDEM_ASSIGN(const auto op, reduce_op_of(name));
  TANDEM_ASSIGN(const int dim, call.dim(2, partial));
  TANDEM_ASSIGN(const Team team, team_of(call));
  TANDEM_ASSIGN(HostTensor part, reduce_scatter(partial, dim, op, team));
  return one(std::move(part));
}

// (shard, group) and (partial, op, group), of the program's group

Result<Values> low_contention_all_gather(const Call& call) {
  TANDEM_TRY(check_group(call, 1));
  TANDEM_ASSIGN(const HostTensor shard, call.tensor(0));
  const Ranks& ranks = call.ranks();
  Dims sizes = shard.sizes();
  sizes[0] *= ranks.group.size();
  const HostTensor whole(sizes, shard.dtype());
  TANDEM_TRY(coll::low_contention_all_gather({.input = shard.view(), .output = whole.view()}, ranks.group,
                                             ranks.stream));
  TANDEM_TRY(ranks.stream.synchronize());
  return one(whole);
}

Result<Values> low_contention_reduce_scatter(const Call& call) {
  TANDEM_TRY(check_group(call, 2));
  TANDEM_ASSIGN(const HostTensor partial, call.tensor(0));
  TANDEM_ASSIGN(const auto name, call.text(1));
  TANDEM_ASSIGN(const auto op, reduce_op_of(name));
  const Ranks& ranks = call.ranks();
  Dims sizes = partial.sizes();
  sizes[0] /= ranks.group.size();
  const HostTensor part(sizes, partial.dtype());
  TANDEM_TRY(coll::low_contention_reduce_scatter({.input = partial.view(), .output = part.view(), .op = op},
                                                 ranks.group, ranks.stream));
  TANDEM_TRY(ranks.stream.synchronize());
  return one(part);
}

constexpr Op kOps[] = {
    {"_c10d_functional.all_gather_into_tensor_coalesced.default", coalesced_all_gather},
    {"_c10d_functional.all_reduce_coalesced.default", coalesced_all_reduce},
    {"_c10d_functional.all_to_all_single.default", all_to_all},
    {"_c10d_functional.broadcast.default", broadcast_from},
    {"_c10d_functional.reduce_scatter_tensor_coalesced.default", coalesced_reduce_scatter},
    {graph::op::kFunctionalAllGather, functional_all_gather},
    {graph::op::kFunctionalAllReduce, functional_all_reduce},
    {graph::op::kFunctionalReduceScatter, functional_reduce_scatter},
    {graph::op::kAllGather, all_gather_along},
    {graph::op::kReduceScatter, reduce_scatter_along},
    {graph::op::kLowContentionAllGather, low_contention_all_gather},
    {graph::op::kLowContentionReduceScatter, low_contention_reduce_scatter},
};

}  // namespace

Result<HostTensor> gather(const HostTensor& shard, int dim, const Team& team,
                          std::optional<std::int64_t> size) {
  if (shard.sizes().empty()) return failf(ErrorCode::kInvalidArgument, "gathers a number, need a dim");
  const HostTensor front = moved(shard, dim, 0);
  Dims sizes = front.sizes();
  sizes[0] *= team.size();
  const HostTensor whole(sizes, shard.dtype());
  if (team.is_alike()) {
    for (std::int64_t rank = 0; rank < team.size(); ++rank) {
      TANDEM_TRY(convert(front.view(), whole.view().narrow(0, rank * front.sizes()[0], front.sizes()[0])));
    }
  } else {
    TANDEM_TRY(
        coll::all_gather({.input = front.view(), .output = whole.view()}, team.group(), team.stream()));
    TANDEM_TRY(team.stream().synchronize());
  }
  if (!size) return moved(whole, 0, dim);
  const TensorView rows = whole.view().narrow(0, 0, *size);
  return HostTensor::copy_of(rows.movedim(0, dim), shard.dtype());
}

Result<HostTensor> reduce_scatter(const HostTensor& partial, int dim, coll::ReduceOp op, const Team& team) {
  if (partial.sizes().empty()) return fail(ErrorCode::kInvalidArgument, "scatters a number, need a dim");
  const std::int64_t rows =
      shard_of(partial.sizes()[dim], static_cast<int>(team.size()), static_cast<int>(team.rank())).size;
  if (team.is_alike()) {
    TANDEM_ASSIGN(const HostTensor whole, all_reduce(partial, op, team));
    return HostTensor::copy_of(whole.view().narrow(dim, 0, rows), partial.dtype());
  }
  const HostTensor front = moved(partial, dim, 0);
  Dims sizes = front.sizes();
  sizes[0] = rows;
  const HostTensor part(sizes, partial.dtype());
  TANDEM_TRY(coll::reduce_scatter({.input = front.view(), .output = part.view(), .op = op, .bias = {}},
                                  team.group(), team.stream()));
  TANDEM_TRY(team.stream().synchronize());
  return padded(moved(part, 0, dim), dim, partial.sizes()[dim], team);
}

Result<HostTensor> padded(const HostTensor& part, int dim, std::int64_t size, const Team& team) {
  const std::int64_t rows = part.sizes()[dim];
  const std::int64_t full = shard_stride(size, static_cast<int>(team.size()));
  if (rows == full) return part;
  Dims sizes = part.sizes();
  sizes[dim] = full;
  HostTensor whole(sizes, part.dtype());
  TANDEM_TRY(convert(part.view(), whole.view().narrow(dim, 0, rows)));
  return whole;
}

Result<HostTensor> all_reduce(const HostTensor& partial, coll::ReduceOp op, const Team& team) {
  if (team.is_alike()) {
    return op == coll::ReduceOp::kAvg ? Result<HostTensor>(partial) : reduce_exchanged(partial, "sum", team);
  }
  const HostTensor sum(partial.sizes(), partial.dtype());
  const auto as_row = [](const HostTensor& x) {
    const TensorView& view = x.view();
    return TensorView::contiguous(view.data, {x.numel()}, view.dtype, view.device);
  };
  TANDEM_TRY(coll::all_reduce({.input = as_row(partial), .output = as_row(sum), .op = op, .bias = {}},
                              team.group(), team.stream()));
  TANDEM_TRY(team.stream().synchronize());
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
  return failf(ErrorCode::kUnsupported, "a fused op of group '{}', but the program runs on group '{}'", name,
               call.ranks().group_name);
}

std::span<const Op> collective_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
