#include <algorithm>
#include <array>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/interpreter/ops.hpp"

namespace tandem::graph::interpreter {
namespace {

/// A convolution over two dims; one over a single dim has a first one of size 1.
struct Convolution {
  std::int64_t batch, in_channels, out_channels, groups;
  std::array<std::int64_t, 2> in, kernel, out, stride, padding, dilation;
};

/// A list of a number for each dim, or one for all.
Result<std::array<std::int64_t, 2>> pair_at(const Call& call, std::size_t idx, std::size_t num_dims,
                                            std::int64_t of_missing) {
  TANDEM_ASSIGN(const auto all, call.integers(idx));
  if (all.size() != num_dims && all.size() != 1) {
    return failf(ErrorCode::kInvalidArgument, "a convolution over {} dims with {} numbers", num_dims,
                 all.size());
  }
  return std::array{num_dims == 1 ? of_missing : all.front(), all.back()};
}

/// From the arguments stride, padding, dilation, whether transposed, output padding and groups, of which
/// `first` is the first.
Result<Convolution> convolution_of(const Call& call, std::size_t first, const Dims& x, const Dims& weight) {
  TANDEM_ASSIGN(const bool is_transposed, call.flag_or(call.argument(first + 3), false));
  if (is_transposed || (x.size() != 3 && x.size() != 4)) {
    return failf(ErrorCode::kUnsupported, "a convolution that is transposed, or not over one or two dims");
  }
  const auto num_dims = static_cast<std::size_t>(x.size() - 2);
  Convolution of{};
  TANDEM_ASSIGN(of.stride, pair_at(call, first, num_dims, 1));
  TANDEM_ASSIGN(of.padding, pair_at(call, first + 1, num_dims, 0));
  TANDEM_ASSIGN(of.dilation, pair_at(call, first + 2, num_dims, 1));
  TANDEM_ASSIGN(of.groups, call.integer_or(first + 5, 1));
  of.batch = x[0];
  of.in_channels = x[1];
  bool fits = weight.size() == x.size() && of.groups > 0 && x[1] % of.groups == 0 &&
              weight[0] % of.groups == 0 && weight[1] * of.groups == x[1];
  if (fits) of.out_channels = weight[0];
  for (int d = 0; fits && d < 2; ++d) {
    const auto i = static_cast<std::size_t>(d);
    const int at = x.size() - 2 + d;  // below 2: the dim that a single one lacks
    of.in[i] = at < 2 ? 1 : x[at];
    of.kernel[i] = at < 2 ? 1 : weight[at];
    const std::int64_t reach = of.dilation[i] * (of.kernel[i] - 1) + 1;
    const std::int64_t room = of.in[i] + 2 * of.padding[i] - reach;
    fits = of.stride[i] > 0 && of.dilation[i] > 0 && of.padding[i] >= 0 && room >= 0;
    if (fits) of.out[i] = room / of.stride[i] + 1;
  }
  if (fits) return of;
  return failf(ErrorCode::kInvalidArgument, "a convolution of {} with {}", to_string(x), to_string(weight));
}

/// Where the elements of one term stand: out += in * weight.
struct Term {
  std::size_t out, in, weight;
};

/// Calls use(Term) for each term of the element of the result at (row, column) in a plane, one channel of one
/// of the batch.
template <class Use>
void each_term_of(const Convolution& of, std::int64_t plane, std::int64_t row, std::int64_t column,
                  const Use& use) {
  const std::int64_t channel = plane % of.out_channels;
  const std::int64_t in_group = of.in_channels / of.groups;
  const std::int64_t first_channel = channel / (of.out_channels / of.groups) * in_group;
  const std::int64_t out = (plane * of.out[0] + row) * of.out[1] + column;
  for (std::int64_t c = 0; c < in_group; ++c) {
    const std::int64_t in_plane = plane / of.out_channels * of.in_channels + first_channel + c;
    for (std::int64_t i = 0; i < of.kernel[0]; ++i) {
      const std::int64_t in_row = row * of.stride[0] - of.padding[0] + i * of.dilation[0];
      if (in_row < 0 || in_row >= of.in[0]) continue;
      for (std::int64_t j = 0; j < of.kernel[1]; ++j) {
        const std::int64_t in_column = column * of.stride[1] - of.padding[1] + j * of.dilation[1];
        if (in_column < 0 || in_column >= of.in[1]) continue;
        const std::int64_t in = (in_plane * of.in[0] + in_row) * of.in[1] + in_column;
        const std::int64_t weight = ((channel * in_group + c) * of.kernel[0] + i) * of.kernel[1] + j;
        use(Term{static_cast<std::size_t>(out), static_cast<std::size_t>(in),
                 static_cast<std::size_t>(weight)});
      }
    }
  }
}

template <class Use>
void each_term(const Convolution& of, const Use& use) {
  for (std::int64_t plane = 0; plane < of.batch * of.out_channels; ++plane) {
    for (std::int64_t row = 0; row < of.out[0]; ++row) {
      for (std::int64_t column = 0; column < of.out[1]; ++column) each_term_of(of, plane, row, column, use);
    }
  }
}

/// The channel of each element of the result.
std::size_t channel_of(const Convolution& of, std::size_t out) {
  return out / static_cast<std::size_t>(of.out[0] * of.out[1]) % static_cast<std::size_t>(of.out_channels);
}

Dims result_sizes(const Convolution& of, const Dims& x) {
  Dims sizes{of.batch, of.out_channels};
  if (x.size() == 4) sizes.push_back(of.out[0]);
  sizes.push_back(of.out[1]);
  return sizes;
}

// (x, weight, bias, ...)
Result<Values> convolution(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const HostTensor weight, call.tensor(1));
  TANDEM_ASSIGN(const auto bias, call.optional_tensor(2));
  TANDEM_ASSIGN(const Convolution of, convolution_of(call, 3, x.sizes(), weight.sizes()));
  if (bias && bias->numel() != of.out_channels) {
    return failf(ErrorCode::kInvalidArgument, "a bias of {} for {} channels", to_string(bias->sizes()),
                 of.out_channels);
  }
  const auto values = elements<double>(x.view());
  const auto weights = elements<double>(weight.view());
  const Dims sizes = result_sizes(of, x.sizes());
  std::vector<double> result(static_cast<std::size_t>(numel(sizes)), 0.0);
  each_term(of, [&](const Term& at) { result[at.out] += values[at.in] * weights[at.weight]; });
  if (bias) {
    const auto biases = elements<double>(bias->view());
    for (std::size_t i = 0; i < result.size(); ++i) result[i] += biases[channel_of(of, i)];
  }
  return one(HostTensor::from(std::span<const double>(result), sizes, x.dtype()));
}

// (gradient, x, weight, sizes of the bias, ...) -> [gradients of x, weight and bias], those that are wanted
Result<Values> convolution_backward(const Call& call) {
  TANDEM_ASSIGN(const HostTensor grad, call.tensor(0));
  TANDEM_ASSIGN(const HostTensor x, call.tensor(1));
  TANDEM_ASSIGN(const HostTensor weight, call.tensor(2));
  TANDEM_ASSIGN(const Convolution of, convolution_of(call, 4, x.sizes(), weight.sizes()));
  if (!(grad.sizes() == result_sizes(of, x.sizes()))) {
    return failf(ErrorCode::kInvalidArgument, "a gradient of {} for a convolution that makes {}",
                 to_string(grad.sizes()), to_string(result_sizes(of, x.sizes())));
  }
  const auto grads = elements<double>(grad.view());
  const auto values = elements<double>(x.view());
  const auto weights = elements<double>(weight.view());
  std::vector<double> of_x(values.size(), 0.0);
  std::vector<double> of_weight(weights.size(), 0.0);
  std::vector<double> of_bias(static_cast<std::size_t>(of.out_channels), 0.0);
  each_term(of, [&](const Term& at) {
    of_x[at.in] += grads[at.out] * weights[at.weight];
    of_weight[at.weight] += grads[at.out] * values[at.in];
  });
  for (std::size_t i = 0; i < grads.size(); ++i) of_bias[channel_of(of, i)] += grads[i];
  const Values all = {HostTensor::from(std::span<const double>(of_x), x.sizes(), x.dtype()),
                      HostTensor::from(std::span<const double>(of_weight), weight.sizes(), weight.dtype()),
                      HostTensor::from(std::span<const double>(of_bias), {of.out_channels}, weight.dtype())};
  const auto& wanted = call.node().type().tensors;
  Values results(all.size());
  for (std::size_t i = 0; i < std::min(results.size(), wanted.size()); ++i) {
    if (wanted[i]) results[i] = all[i];
  }
  return results;
}

constexpr Op kOps[] = {
    {"aten.convolution.default", convolution},
    {"aten.convolution_backward.default", convolution_backward},
};

}  // namespace

std::span<const Op> convolution_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
