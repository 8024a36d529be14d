#include <algorithm>
#include <array>
#include <cmath>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/interpreter/ops.hpp"

namespace tandem::graph::interpreter {
namespace {

// Softmax and layer norm, with their gradients: in f64, rounded once.

using Doubles = std::vector<double>;

/// Calls use(index of element i) for rows along `dim`: `use` takes a function from i to the index, and the
/// number of elements of a row.
template <class Use>
void each_row(const Dims& sizes, int dim, const Use& use) {
  std::int64_t inner = 1;
  for (int d = dim + 1; d < sizes.size(); ++d) inner *= sizes[d];
  const std::int64_t size = sizes.empty() ? 1 : sizes[dim];
  const std::int64_t num_rows = size == 0 ? 0 : numel(sizes) / size;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const std::int64_t first = row / inner * size * inner + row % inner;
    use([&](std::int64_t i) { return static_cast<std::size_t>(first + i * inner); }, size);
  }
}

Result<int> dim_of(const Call& call, std::size_t idx, const HostTensor& x) {
  return x.sizes().empty() ? Result<int>(0) : call.dim(idx, x);
}

// (x, dim, whether f16 becomes f32)
template <bool kLog>
Result<Values> softmax(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const int dim, dim_of(call, 1, x));
  TANDEM_ASSIGN(const bool widens, call.flag_or(call.argument(2), false));
  Doubles values = elements<double>(x.view());
  each_row(x.sizes(), dim, [&](const auto& at, std::int64_t size) {
    double largest = -INFINITY;
    for (std::int64_t i = 0; i < size; ++i) largest = std::max(largest, values[at(i)]);
    double sum = 0;
    for (std::int64_t i = 0; i < size; ++i) sum += std::exp(values[at(i)] - largest);
    for (std::int64_t i = 0; i < size; ++i) {
      double& value = values[at(i)];
      value = kLog ? value - largest - std::log(sum) : std::exp(value - largest) / sum;
    }
  });
  return one(HostTensor::from(std::span<const double>(values), x.sizes(), widens ? DType::kF32 : x.dtype()));
}

// (gradient, what the op has made, dim, type of its input)
template <bool kLog>
Result<Values> softmax_backward(const Call& call) {
  TANDEM_ASSIGN(const HostTensor grad, call.tensor(0));
  TANDEM_ASSIGN(const HostTensor made, call.tensor(1));
  TANDEM_ASSIGN(const int dim, dim_of(call, 2, made));
  TANDEM_ASSIGN(const DType dtype, call.dtype_or(call.argument(3), grad.dtype()));
  if (!(grad.sizes() == made.sizes())) {
    return failf(ErrorCode::kInvalidArgument, "a gradient of {} for {}", to_string(grad.sizes()),
                 to_string(made.sizes()));
  }
  Doubles grads = elements<double>(grad.view());
  const Doubles out = elements<double>(made.view());
  each_row(made.sizes(), dim, [&](const auto& at, std::int64_t size) {
    double sum = 0;
    for (std::int64_t i = 0; i < size; ++i) sum += grads[at(i)] * (kLog ? 1 : out[at(i)]);
    for (std::int64_t i = 0; i < size; ++i) {
      double& each = grads[at(i)];
      each = kLog ? each - std::exp(out[at(i)]) * sum : out[at(i)] * (each - sum);
    }
  });
  return one(HostTensor::from(std::span<const double>(grads), made.sizes(), dtype));
}

/// A tensor whose last dims are normalised, row by row.
struct Rows {
  Doubles values;
  std::size_t width = 1;
  Dims row_sizes;  ///< of x, with 1 for each normalised dim
  Dims normalised;

  [[nodiscard]] std::size_t count() const { return width == 0 ? 0 : values.size() / width; }
};

/// `shape` is the place of the normalised sizes, which are the last ones of `x`.
Result<Rows> rows_of(const Call& call, const HostTensor& x, std::size_t shape) {
  TANDEM_ASSIGN(const auto sizes, call.integers(shape));
  const int num_rows_dims = x.sizes().size() - static_cast<int>(sizes.size());
  Rows rows{elements<double>(x.view()), 1, x.sizes(), {}};
  bool fits = num_rows_dims >= 0;
  for (int d = std::max(num_rows_dims, 0); fits && d < x.sizes().size(); ++d) {
    fits = x.sizes()[d] == sizes[static_cast<std::size_t>(d - num_rows_dims)];
    rows.width *= static_cast<std::size_t>(x.sizes()[d]);
    rows.row_sizes[d] = 1;
    rows.normalised.push_back(x.sizes()[d]);
  }
  if (fits) return rows;
  return failf(ErrorCode::kInvalidArgument, "normalises [{}] of {}", fmt::join(sizes, ", "),
               to_string(x.sizes()));
}

/// Elements of an optional weight or bias, `otherwise` for each if it is not there.
Result<Doubles> weights(const Call& call, std::size_t idx, const Rows& rows, double otherwise) {
  TANDEM_ASSIGN(const auto tensor, call.optional_tensor(idx));
  if (!tensor) return Doubles(rows.width, otherwise);
  if (tensor->numel() == static_cast<std::int64_t>(rows.width)) return elements<double>(tensor->view());
  return failf(ErrorCode::kInvalidArgument, "a weight of {} for rows of {}", to_string(tensor->sizes()),
               rows.width);
}

/// The type that the graph gives to a result: a mean is kept in f32, or in the type of x.
DType type_of_result(const Call& call, std::size_t idx, DType otherwise) {
  const auto& tensors = call.node().type().tensors;
  if (idx >= tensors.size() || !tensors[idx]) return otherwise;
  return graph::dtype_of(tensors[idx]->dtype).value_or(otherwise);
}

// (x, normalised sizes, weight, bias, epsilon) -> [result, means, reciprocals of the deviations]
Result<Values> layer_norm(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(Rows rows, rows_of(call, x, 1));
  TANDEM_ASSIGN(const Doubles weight, weights(call, 2, rows, 1));
  TANDEM_ASSIGN(const Doubles bias, weights(call, 3, rows, 0));
  TANDEM_ASSIGN(const double epsilon, call.number(4));
  const auto width = static_cast<double>(rows.width);
  Doubles means;
  Doubles factors;
  for (std::size_t row = 0; row < rows.count(); ++row) {
    double* const values = &rows.values[row * rows.width];
    double sum = 0;
    for (std::size_t i = 0; i < rows.width; ++i) sum += values[i];
    const double mean = sum / width;
    double squares = 0;
    for (std::size_t i = 0; i < rows.width; ++i) squares += (values[i] - mean) * (values[i] - mean);
    const double factor = 1 / std::sqrt(squares / width + epsilon);
    for (std::size_t i = 0; i < rows.width; ++i)
      values[i] = (values[i] - mean) * factor * weight[i] + bias[i];
    means.push_back(mean);
    factors.push_back(factor);
  }
  const auto made = [&](const Doubles& values, const Dims& sizes, std::size_t idx) {
    return HostTensor::from(std::span<const double>(values), sizes, type_of_result(call, idx, x.dtype()));
  };
  return Values{made(rows.values, x.sizes(), 0), made(means, rows.row_sizes, 1),
                made(factors, rows.row_sizes, 2)};
}

/// (gradient, x, normalised sizes, means, factors, weight, bias, which results are wanted)
/// -> [gradients of x, weight and bias]
Result<Values> layer_norm_backward(const Call& call) {
  TANDEM_ASSIGN(const HostTensor grad, call.tensor(0));
  TANDEM_ASSIGN(const HostTensor x, call.tensor(1));
  TANDEM_ASSIGN(Rows rows, rows_of(call, x, 2));
  TANDEM_ASSIGN(const HostTensor means, call.tensor(3));
  TANDEM_ASSIGN(const HostTensor factors, call.tensor(4));
  TANDEM_ASSIGN(const Doubles weight, weights(call, 5, rows, 1));
  const auto num_rows = static_cast<std::int64_t>(rows.count());
  if (!(grad.sizes() == x.sizes()) || means.numel() != num_rows || factors.numel() != num_rows) {
    return failf(ErrorCode::kInvalidArgument, "a gradient of {}, means of {} and factors of {} for {}",
                 to_string(grad.sizes()), to_string(means.sizes()), to_string(factors.sizes()),
                 to_string(x.sizes()));
  }
  const Doubles grads = elements<double>(grad.view());
  const Doubles mean = elements<double>(means.view());
  const Doubles factor = elements<double>(factors.view());
  const auto width = static_cast<double>(rows.width);
  Doubles of_weight(rows.width, 0.0);
  Doubles of_bias(rows.width, 0.0);
  for (std::size_t row = 0; row < rows.count(); ++row) {
    double* const values = &rows.values[row * rows.width];
    const double* const own = &grads[row * rows.width];
    double sum = 0;
    double product = 0;
    for (std::size_t i = 0; i < rows.width; ++i) {
      values[i] = (values[i] - mean[row]) * factor[row];
      of_weight[i] += own[i] * values[i];
      of_bias[i] += own[i];
      sum += own[i] * weight[i];
      product += own[i] * weight[i] * values[i];
    }
    for (std::size_t i = 0; i < rows.width; ++i) {
      values[i] = factor[row] * (own[i] * weight[i] - sum / width - values[i] * product / width);
    }
  }
  Values results(3);
  const std::array<const Doubles*, 3> all = {&rows.values, &of_weight, &of_bias};
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto& tensors = call.node().type().tensors;
    if (i >= tensors.size() || !tensors[i]) continue;  // is not wanted
    results[i] = HostTensor::from(std::span<const double>(*all[i]), i == 0 ? x.sizes() : rows.normalised,
                                  type_of_result(call, i, x.dtype()));
  }
  return results;
}

/// Refuses dropout that drops: `rate` and `trains` are places.
Result<void> check_no_dropout(std::span<const graph::Argument> arguments) {
  const bool is_off = arguments.size() > 2 && std::holds_alternative<bool>(arguments[2].value) &&
                      !std::get<bool>(arguments[2].value);
  if (is_off || (arguments.size() > 1 && number_of(arguments[1]) == 0.0)) return {};
  return failf(ErrorCode::kUnsupported, "dropout cannot be executed, only of 0");
}

Result<Values> dropout(const Call& call) {
  TANDEM_ASSIGN(HostTensor x, call.tensor(0));
  return one(std::move(x));
}

// -> [x, which elements are kept]
Result<Values> native_dropout(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  const double kept = 1;
  const HostTensor scalar = HostTensor::from(std::span(&kept, 1), {}, DType::kBool);
  return Values{x, HostTensor::copy_of(broadcast(scalar.view(), x.sizes()), DType::kBool)};
}

constexpr Op kOps[] = {
    {"aten._log_softmax.default", softmax<true>},
    {"aten._log_softmax_backward_data.default", softmax_backward<true>},
    {"aten._softmax.default", softmax<false>},
    {"aten._softmax_backward_data.default", softmax_backward<false>},
    {"aten.dropout.default", dropout, check_no_dropout},
    {"aten.native_dropout.default", native_dropout, check_no_dropout},
    {"aten.native_layer_norm.default", layer_norm},
    {"aten.native_layer_norm_backward.default", layer_norm_backward},
};

}  // namespace

std::span<const Op> normalisation_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
