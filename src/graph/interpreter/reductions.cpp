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

/// How a dim, or several, are reduced to one element.
struct Fold {
  double start;
  double (*add)(double so_far, double element);
  bool is_mean = false;
};

/// The dims that are reduced, the sizes that this leaves, and for each element its place there.
struct Reduction {
  Dims sizes;
  std::vector<std::size_t> places;
  std::size_t num_results;
};

// (x, dims, whether reduced dims stay with one element)
Result<Reduction> reduction_of(const Call& call, const HostTensor& x) {
  TANDEM_ASSIGN(const auto is_reduced, call.dims_or_all(1, x));
  TANDEM_ASSIGN(const bool keeps_dims, call.flag_or(call.argument(2, "keepdim"), false));
  Dims with_ones = x.sizes();
  Reduction reduction;
  for (int d = 0; d < x.sizes().size(); ++d) {
    const bool goes = is_reduced[static_cast<std::size_t>(d)];
    if (goes) with_ones[d] = 1;
    if (!goes || keeps_dims) reduction.sizes.push_back(with_ones[d]);
  }
  reduction.num_results = static_cast<std::size_t>(numel(with_ones));
  // The position in the result, broadcast back over x.
  std::vector<double> positions(reduction.num_results);
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<double>(i);
  const auto places = elements<double>(
      broadcast(TensorView::contiguous(positions.data(), with_ones, DType::kF64), x.sizes()));
  reduction.places.assign(places.begin(), places.end());
  return reduction;
}

/// Folds in f64, in the order in which the elements stand.
std::vector<double> folded(const HostTensor& x, const Reduction& reduction, const Fold& fold) {
  std::vector<double> results(reduction.num_results, fold.start);
  const auto values = elements<double>(x.view());
  for (std::size_t i = 0; i < values.size(); ++i) {
    double& result = results[reduction.places[i]];
    result = fold.add(result, values[i]);
  }
  if (fold.is_mean) {
    const double count = static_cast<double>(values.size()) / static_cast<double>(results.size());
    for (double& result : results) result /= count;
  }
  return results;
}

Result<Values> reduce(const Call& call, const Fold& fold, DType dtype) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const Reduction reduction, reduction_of(call, x));
  TANDEM_ASSIGN(dtype, call.dtype_or(call.named("dtype"), dtype));
  const auto results = folded(x, reduction, fold);
  return one(HostTensor::from(std::span<const double>(results), reduction.sizes, dtype));
}

double add(double x, double y) {
  return x + y;
}

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// Of the type of x; PyTorch sums and multiplies integers in 64 bits.
Result<Values> sum(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  return reduce(call, {0, add}, is_floating(x.dtype()) ? x.dtype() : DType::kI64);
}

Result<Values> product(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  return reduce(call, {1, [](double so_far, double element) { return so_far * element; }},
                is_floating(x.dtype()) ? x.dtype() : DType::kI64);
}

Result<Values> mean(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  return reduce(call, {0, add, true}, x.dtype());
}

Result<Values> largest(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  return reduce(call, {-kInfinite, larger}, x.dtype());
}

Result<Values> smallest(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  return reduce(call, {kInfinite, [](double y, double element) { return -larger(-y, -element); }}, x.dtype());
}

Result<Values> any(const Call& call) {
  return reduce(call, {0, [](double y, double element) { return y != 0 || element != 0 ? 1.0 : 0.0; }},
                DType::kBool);
}

Result<Values> all(const Call& call) {
  return reduce(call, {1, [](double y, double element) { return y != 0 && element != 0 ? 1.0 : 0.0; }},
                DType::kBool);
}

/// The sum of squared distances from the mean, over the number of elements less the correction, which is 1
/// where the call says nothing. `mean` is set too.
Result<HostTensor> variance(const Call& call, std::optional<HostTensor>* mean) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const Reduction reduction, reduction_of(call, x));
  TANDEM_ASSIGN(const double correction, call.number_or(call.named("correction"), 1));
  const auto means = folded(x, reduction, {0, add, true});
  std::vector<double> variances(means.size(), 0.0);
  const auto values = elements<double>(x.view());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t place = reduction.places[i];
    variances[place] += (values[i] - means[place]) * (values[i] - means[place]);
  }
  const double count = static_cast<double>(values.size()) / static_cast<double>(means.size());
  for (double& each : variances) each /= std::max(count - correction, 0.0);
  if (mean != nullptr) *mean = HostTensor::from(std::span<const double>(means), reduction.sizes, x.dtype());
  return HostTensor::from(std::span<const double>(variances), reduction.sizes, x.dtype());
}

Result<Values> var(const Call& call) {
  TANDEM_ASSIGN(HostTensor result, variance(call, nullptr));
  return one(std::move(result));
}

Result<Values> var_mean(const Call& call) {
  Values values(2);
  TANDEM_ASSIGN(values[0], variance(call, &values[1]));
  return values;
}

constexpr Op kOps[] = {
    {"aten.all.default", all},      {"aten.all.dim", all},           {"aten.all.dims", all},
    {"aten.amax.default", largest}, {"aten.amin.default", smallest}, {"aten.any.default", any},
    {"aten.any.dim", any},          {"aten.any.dims", any},          {graph::op::kMax, largest},
    {"aten.mean.default", mean},    {"aten.mean.dim", mean},         {"aten.min.default", smallest},
    {"aten.prod.default", product}, {"aten.prod.dim_int", product},  {"aten.sum.default", sum},
    {"aten.sum.dim_IntList", sum},  {"aten.var.correction", var},    {"aten.var_mean.correction", var_mean},
};

}  // namespace

std::span<const Op> reduction_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
