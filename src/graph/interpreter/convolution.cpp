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

// (x, weight, bias, stride, padding, dilation, whether transposed, output padding, groups)
Result<Convolution> convolution_of(const Call& call, const Dims& x, const Dims& weight) {
  TANDEM_ASSIGN(const bool is_transposed, call.flag_or(call.argument(6), false));
  if (is_transposed || (x.size() != 3 && x.size() != 4)) {
    return failf(ErrorCode::kUnsupported, "a convolution that is transposed, or not over one or two dims");
  }
  const auto num_dims = static_cast<std::size_t>(x.size() - 2);
  Convolution of{};
  TANDEM_ASSIGN(of.stride, pair_at(call, 3, num_dims, 1));
  TANDEM_ASSIGN(of.padding, pair_at(call, 4, num_dims, 0));
  TANDEM_ASSIGN(of.dilation, pair_at(call, 5, num_dims, 1));
  TANDEM_ASSIGN(of.groups, call.integer_or(8, 1));
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

/// One element of the result: in f64.
double element_of(const Convolution& of, const std::vector<double>& x, const std::vector<double>& weight,
                  std::int64_t batch, std::int64_t channel, std::array<std::int64_t, 2> at) {
  const std::int64_t in_group = of.in_channels / of.groups;
  const std::int64_t first_channel = channel / (of.out_channels / of.groups) * in_group;
  double sum = 0;
  for (std::int64_t c = 0; c < in_group; ++c) {
    for (std::int64_t i = 0; i < of.kernel[0]; ++i) {
      const std::int64_t row = at[0] * of.stride[0] - of.padding[0] + i * of.dilation[0];
      if (row < 0 || row >= of.in[0]) continue;
      for (std::int64_t j = 0; j < of.kernel[1]; ++j) {
        const std::int64_t column = at[1] * of.stride[1] - of.padding[1] + j * of.dilation[1];
        if (column < 0 || column >= of.in[1]) continue;
        const std::int64_t plane = batch * of.in_channels + first_channel + c;
        sum += x[static_cast<std::size_t>((plane * of.in[0] + row) * of.in[1] + column)] *
               weight[static_cast<std::size_t>(((channel * in_group + c) * of.kernel[0] + i) * of.kernel[1] +
                                               j)];
      }
    }
  }
  return sum;
}

Result<Values> convolution(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const HostTensor weight, call.tensor(1));
  TANDEM_ASSIGN(const auto bias, call.optional_tensor(2));
  TANDEM_ASSIGN(const Convolution of, convolution_of(call, x.sizes(), weight.sizes()));
  if (bias && bias->numel() != of.out_channels) {
    return failf(ErrorCode::kInvalidArgument, "a bias of {} for {} channels", to_string(bias->sizes()),
                 of.out_channels);
  }
  const auto values = elements<double>(x.view());
  const auto weights = elements<double>(weight.view());
  const auto biases = bias ? elements<double>(bias->view())
                           : std::vector<double>(static_cast<std::size_t>(of.out_channels), 0.0);
  std::vector<double> result;
  for (std::int64_t batch = 0; batch < of.batch; ++batch) {
    for (std::int64_t channel = 0; channel < of.out_channels; ++channel) {
      for (std::int64_t at = 0; at < of.out[0] * of.out[1]; ++at) {
        result.push_back(biases[static_cast<std::size_t>(channel)] +
                         element_of(of, values, weights, batch, channel, {at / of.out[1], at % of.out[1]}));
      }
    }
  }
  Dims sizes{of.batch, of.out_channels};
  if (x.sizes().size() == 4) sizes.push_back(of.out[0]);
  sizes.push_back(of.out[1]);
  return one(HostTensor::from(std::span<const double>(result), sizes, x.dtype()));
}

constexpr Op kOps[] = {
    {"aten.convolution.default", convolution},
};

}  // namespace

std::span<const Op> convolution_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
