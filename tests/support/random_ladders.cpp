#include "support/random_ladders.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace tandem::testing {
namespace {

using Shape = std::vector<std::int64_t>;

struct Value {
  std::string name;
  Shape shape;
};

/// Writes a program line by line.
class Writer {
 public:
  explicit Writer(std::span<const std::uint8_t> choices) : choices_(choices) {}
  std::string program();

 private:
  /// One of 0, ..., bound - 1.
  std::int64_t choose(std::int64_t bound) {
    if (choices_.empty()) return 0;
    const std::uint8_t choice = choices_.front();
    choices_ = choices_.subspan(1);
    return choice % bound;
  }
  bool may() { return choose(2) == 1; }

  Value add(const Shape& shape, const std::string& call) {
    Value value{fmt::format("v{}", num_values_++), shape};
    text_ += fmt::format("%{}: {} = {}\n", value.name, type_of(shape), call);
    return value;
  }
  static std::string type_of(const Shape& shape) {
    return fmt::format("float32[{}]", fmt::join(shape, ", "));
  }
  Value input(const Shape& shape) { return add(shape, "placeholder"); }
  Value wait(const Value& of) {
    return add(of.shape, fmt::format("_c10d_functional.wait_tensor.default(%{})", of.name));
  }
  Value reshape(const Value& of, const Shape& shape) {
    return add(shape, fmt::format("aten.reshape.default(%{}, [{}])", of.name, fmt::join(shape, ", ")));
  }

  std::vector<Value> parts_by_slices(const Value& of, std::size_t dim, const Shape& lengths);
  std::vector<Value> parts_by_split(const Value& of, std::size_t dim, const Shape& lengths);
  std::vector<Value> parts(const Value& of, std::size_t dim, std::int64_t count);
  std::vector<Value> in_some_order(std::vector<Value> values);
  Value joined(const std::vector<Value>& values, std::size_t dim);
  Value trimmed(const Value& of);
  Value shards_padded(const Value& of, std::size_t dim);
  Value taken_apart_and_joined(Value of, bool is_gathered);
  void gather();
  void scatter();

  std::span<const std::uint8_t> choices_;
  std::string text_;
  std::int64_t world_ = 1;
  int num_values_ = 0;
  std::vector<Value> outputs_;
};

std::vector<Value> Writer::parts_by_slices(const Value& of, std::size_t dim, const Shape& lengths) {
  constexpr std::int64_t kEnd = 9223372036854775807;
  std::vector<Value> parts;
  std::int64_t start = 0;
  for (const std::int64_t length : lengths) {
    Shape shape = of.shape;
    shape[dim] = length;
    const std::int64_t end = start + length;
    const bool is_last = end == of.shape[dim];
    const bool from_end = is_last && start > 0 && may();
    parts.push_back(add(shape, fmt::format("aten.slice.Tensor(%{}, {}, {}, {})", of.name, dim,
                                           from_end ? start - end : start, is_last && may() ? kEnd : end)));
    start = end;
  }
  return parts;
}

std::vector<Value> Writer::parts_by_split(const Value& of, std::size_t dim, const Shape& lengths) {
  std::string types;
  for (const std::int64_t length : lengths) {
    Shape shape = of.shape;
    shape[dim] = length;
    types += (types.empty() ? "" : ", ") + type_of(shape);
  }
  const bool is_even = std::all_of(lengths.begin(), lengths.end(),
                                   [&](std::int64_t length) { return length == lengths.front(); });
  const std::string all = fmt::format("s{}", num_values_++);
  text_ += fmt::format("%{}: ({}) = ", all, types);
  text_ += is_even && may() ? fmt::format("aten.split.Tensor(%{}, {}, {})\n", of.name, lengths.front(), dim)
                            : fmt::format("aten.split_with_sizes.default(%{}, [{}], {})\n", of.name,
                                          fmt::join(lengths, ", "), dim);
  std::vector<Value> parts;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    Shape shape = of.shape;
    shape[dim] = lengths[i];
    parts.push_back(add(shape, fmt::format("\"<built-in function getitem>\"(%{}, {})", all, i)));
  }
  return parts;
}

/// All of a tensor, in `count` parts if that divides it and in parts of different lengths if not.
std::vector<Value> Writer::parts(const Value& of, std::size_t dim, std::int64_t count) {
  const std::int64_t length = std::max<std::int64_t>(1, of.shape[dim] / count);
  Shape lengths;
  std::int64_t rest = of.shape[dim];
  while (rest > 0) {
    const std::int64_t next = std::min(rest, choose(32) == 1 ? length + 1 : length);
    lengths.push_back(next);
    rest -= next;
  }
  return may() ? parts_by_slices(of, dim, lengths) : parts_by_split(of, dim, lengths);
}

std::vector<Value> Writer::in_some_order(std::vector<Value> values) {
  switch (choose(10)) {
    case 1:
      std::reverse(values.begin(), values.end());
      break;
    case 2:
      std::rotate(values.begin(), values.begin() + 1, values.end());
      break;
    case 3:
      std::swap(values.front(),
                values[static_cast<std::size_t>(choose(static_cast<std::int64_t>(values.size())))]);
      break;
    case 4:
      values[static_cast<std::size_t>(choose(static_cast<std::int64_t>(values.size())))] = values.front();
      break;
    default:  // the order of ranks is what programs have
      break;
  }
  return values;
}

/// Those that have the shape of the first but for the dim.
Value Writer::joined(const std::vector<Value>& values, std::size_t dim) {
  Shape shape = values.front().shape;
  shape[dim] = 0;
  std::string names;
  for (const Value& value : values) {
    Shape other = value.shape;
    other[dim] = shape[dim];
    if (other != shape) continue;
    shape[dim] += value.shape[dim];
    names += (names.empty() ? "%" : ", %") + value.name;
  }
  return add(shape, fmt::format("aten.cat.default([{}], {})", names, dim));
}

/// Once or twice. Ranks' blocks lie along dim 0 of what is gathered, and of what is scattered.
Value Writer::taken_apart_and_joined(Value of, bool is_gathered) {
  const auto pick_dim = [&](bool is_ranks) {
    if (is_ranks && choose(8) != 1) return std::size_t{0};
    return static_cast<std::size_t>(choose(static_cast<std::int64_t>(of.shape.size())));
  };
  for (std::int64_t round = choose(4) == 1 ? 1 : 0; round >= 0; --round) {
    const std::size_t from = pick_dim(is_gathered);
    const std::int64_t count = choose(8) == 1 ? 2 : world_ * (choose(4) == 1 ? 2 : 1);
    auto taken = parts(of, from, std::min(count, of.shape[from]));
    taken = in_some_order(std::move(taken));
    if (choose(8) == 1) outputs_.push_back(taken.back());
    of = joined(taken, may() ? from : pick_dim(!is_gathered));
    if (choose(8) == 1) outputs_.push_back(of);
  }
  return of;
}

/// Without some of the last rows of a dim: ranks' shards may be uneven.
Value Writer::trimmed(const Value& of) {
  const auto dim = static_cast<std::size_t>(choose(static_cast<std::int64_t>(of.shape.size()) - 1));
  Shape shape = of.shape;
  shape[dim] -= std::min(shape[dim] - 1, 1 + choose(world_));
  return add(shape, fmt::format("aten.slice.Tensor(%{}, {}, 0, {})", of.name, dim, shape[dim]));
}

/// Shards along a dim, the short ones with zeros behind them, one after the other along dim 0.
Value Writer::shards_padded(const Value& of, std::size_t dim) {
  const std::int64_t full = (of.shape[dim] + world_ - 1) / world_;
  Shape lengths;
  for (std::int64_t rest = of.shape[dim]; rest > 0; rest -= full) lengths.push_back(std::min(rest, full));
  std::vector<Value> shards = parts_by_split(of, dim, lengths);
  for (Value& shard : shards) {
    if (shard.shape[dim] == full) continue;
    Shape widths(2 * (of.shape.size() - dim), 0);
    widths.back() = full - shard.shape[dim];
    Shape shape = shard.shape;
    shape[dim] = full;
    shard = add(shape, fmt::format("aten.constant_pad_nd.default(%{}, [{}], 0.0)", shard.name,
                                   fmt::join(widths, ", ")));
  }
  return joined(in_some_order(std::move(shards)), 0);
}

void Writer::gather() {
  Shape shape{1 + choose(3), 1 + choose(4), 4 * world_};
  if (may()) shape.erase(shape.begin());
  const Value shard = input(shape);
  shape[0] *= world_;
  const Value whole =
      wait(add(shape, fmt::format("_c10d_functional.all_gather_into_tensor.default(%{}, {}, \"0\")",
                                  shard.name, world_)));
  Value left = taken_apart_and_joined(whole, true);
  if (choose(4) == 1) left = trimmed(left);
  const std::int64_t k = left.shape.back();
  const std::int64_t m =
      std::accumulate(left.shape.begin(), left.shape.end() - 1, std::int64_t{1}, std::multiplies<>());
  const Value rows = left.shape.size() == 2 ? left : reshape(left, {m, k});
  for (std::int64_t i = choose(2); i >= 0; --i) {
    const Value right = input({k, 3});
    outputs_.push_back(add({m, 3}, fmt::format("aten.mm.default(%{}, %{})", rows.name, right.name)));
  }
}

void Writer::scatter() {
  const std::int64_t outer = may() ? 1 + choose(3) : 0;
  const bool is_uneven = choose(4) == 1;
  const std::int64_t rows = world_ * (1 + choose(3)) + (is_uneven ? 1 + choose(world_ - 1) : 0);
  const std::int64_t m = std::max<std::int64_t>(1, outer) * rows;
  const std::int64_t n = world_ * (1 + choose(2));
  const Value a = input({m, 5});
  const Value b = input({5, n});
  const Value product = add({m, n}, fmt::format("aten.mm.default(%{}, %{})", a.name, b.name));
  const Value whole = outer == 0 ? product : reshape(product, {outer, rows, n});
  const Value partial =
      is_uneven ? shards_padded(whole, outer == 0 ? 0 : 1) : taken_apart_and_joined(whole, false);
  if (partial.shape[0] % world_ != 0) {
    outputs_.push_back(partial);
    return;
  }
  Shape shape = partial.shape;
  shape[0] /= world_;
  outputs_.push_back(
      wait(add(shape, fmt::format("_c10d_functional.reduce_scatter_tensor.default(%{}, \"{}\", {}, \"0\")",
                                  partial.name, may() ? "avg" : "sum", world_))));
}

std::string Writer::program() {
  world_ = 2 + choose(3);
  text_ = fmt::format("graph world {} group \"0\" source \"\"\n", world_);
  may() ? scatter() : gather();
  std::string names;
  for (const Value& output : outputs_) names += (names.empty() ? "%" : ", %") + output.name;
  return text_ + fmt::format("%output: null = output([{}])\n", names);
}

}  // namespace

std::string random_ladder(std::span<const std::uint8_t> choices) {
  return Writer(choices).program();
}

}  // namespace tandem::testing
