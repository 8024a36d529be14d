#include <algorithm>
#include <functional>
#include <limits>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/interpreter/ops.hpp"
#include "graph/ir/ops.hpp"

namespace tandem::graph::interpreter {
namespace {

double larger(double x, double y) {
  return x > y || x != x ? x : y;  // a NaN wins
}

/// Which dims argument 1 names; all, if it names none.
Result<std::vector<bool>> reduced_dims(const Call& call, const HostTensor& x) {
  const int num_dims = x.sizes().size();
  std::vector<bool> is_reduced(static_cast<std::size_t>(num_dims), false);
  std::vector<std::int64_t> dims;
  if (call.argument(1) != nullptr) {
    TANDEM_ASSIGN(dims, call.integers(1));
  }
  for (const std::int64_t dim : dims) {
    const std::int64_t at = dim < 0 ? dim + num_dims : dim;
    if (at < 0 || at >= num_dims) {
      return failf(ErrorCode::kInvalidArgument, "dim {} does not exist in sizes {}", dim,
                   to_string(x.sizes()));
    }
    is_reduced[static_cast<std::size_t>(at)] = true;
  }
  if (dims.empty()) is_reduced.assign(is_reduced.size(), true);
  return is_reduced;
}

/// Folds the dims in f64, in the order in which the elements stand, and divides by `divisor(count)`.
Result<Values> reduce(const Call& call, double start, double (*fold)(double, double), bool is_mean = false) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  if (!is_floating(x.dtype())) {
    return failf(ErrorCode::kUnsupported, "reduces floating types only, got {}", to_string(x.dtype()));
  }
  TANDEM_ASSIGN(const auto is_reduced, reduced_dims(call, x));
  TANDEM_ASSIGN(const bool keeps_dims, call.flag_or(call.argument(2), false));
  TANDEM_ASSIGN(const DType dtype, call.dtype_or(call.named("dtype"), x.dtype()));

  Dims with_ones = x.sizes();
  Dims sizes;
  for (int d = 0; d < x.sizes().size(); ++d) {
    const bool goes = is_reduced[static_cast<std::size_t>(d)];
    if (goes) with_ones[d] = 1;
    if (!goes || keeps_dims) sizes.push_back(with_ones[d]);
  }
  std::vector<double> results(static_cast<std::size_t>(numel(with_ones)), start);
  // Where each element goes: the position in the result, broadcast back over x.
  std::vector<double> places(results.size());
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<double>(i);
  const auto place =
      elements<double>(broadcast(TensorView::contiguous(places.data(), with_ones, DType::kF64), x.sizes()));
  const auto values = elements<double>(x.view());
  for (std::size_t i = 0; i < values.size(); ++i) {
    double& result = results[static_cast<std::size_t>(place[i])];
    result = fold(result, values[i]);
  }
  if (is_mean) {
    const double count = static_cast<double>(values.size()) / static_cast<double>(results.size());
    for (double& result : results) result /= count;
  }
  return one(HostTensor::from(std::span<const double>(results), sizes, dtype));
}

double add(double x, double y) {
  return x + y;
}

Result<Values> sum(const Call& call) {
  return reduce(call, 0, add);
}

Result<Values> mean(const Call& call) {
  return reduce(call, 0, add, true);
}

Result<Values> largest(const Call& call) {
  return reduce(call, -std::numeric_limits<double>::infinity(), larger);
}

constexpr Op kOps[] = {
    {"aten.amax.default", largest}, {graph::op::kMax, largest}, {"aten.mean.dim", mean},
    {"aten.sum.dim_IntList", sum},  {"aten.sum.default", sum},
};

}  // namespace

std::span<const Op> reduction_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
