#include <cmath>
#include <numbers>

#include "base/format.hpp"
#include "graph/interpreter/elementwise.hpp"
#include "graph/interpreter/ops.hpp"

namespace tandem::graph::interpreter {
namespace {

template <class T>
T sigmoid_of(T x) {
  return 1 / (1 + std::exp(-x));
}

/// The share of a normal distribution below x.
template <class T>
T normal_below(T x) {
  return T{0.5} * (1 + std::erf(x * static_cast<T>(1 / std::numbers::sqrt2)));
}

template <class T>
constexpr T kTanhScale = static_cast<T>(0.7978845608028654);  // sqrt(2 / pi)
template <class T>
constexpr T kTanhCube = static_cast<T>(0.044715);

template <class T>
T tanh_of_gelu(T x) {
  return std::tanh(kTanhScale<T> * (x + kTanhCube<T> * x * x * x));
}

/// Whether gelu is the one by tanh.
Result<bool> is_by_tanh(const Call& call) {
  const auto* const found = call.named("approximate");
  const auto* const name = found == nullptr ? nullptr : std::get_if<std::string>(&found->value);
  if (found == nullptr || (name != nullptr && *name == "none")) return false;
  if (name != nullptr && *name == "tanh") return true;
  return failf(ErrorCode::kInvalidArgument, "gelu is approximated by something else than tanh");
}

Result<Values> gelu(const Call& call) {
  TANDEM_ASSIGN(const bool by_tanh, is_by_tanh(call));
  return compute_reals<1>(call, [&](auto x) {
    using T = decltype(x);
    return x * (by_tanh ? T{0.5} * (1 + tanh_of_gelu(x)) : normal_below(x));
  });
}

// (gradient, x)
Result<Values> gelu_backward(const Call& call) {
  TANDEM_ASSIGN(const bool by_tanh, is_by_tanh(call));
  return compute_reals<2>(call, [&](auto grad, auto x) {
    using T = decltype(x);
    if (by_tanh) {
      const T tanh = tanh_of_gelu(x);
      const T inner = kTanhScale<T> * (1 + 3 * kTanhCube<T> * x * x);
      return grad * (T{0.5} * (1 + tanh) + T{0.5} * x * (1 - tanh * tanh) * inner);
    }
    constexpr auto kDensityAt0 = static_cast<T>(0.3989422804014327);  // 1 / sqrt(2 * pi)
    return grad * (normal_below(x) + x * kDensityAt0 * std::exp(T{-0.5} * x * x));
  });
}

Result<Values> silu(const Call& call) {
  return compute_reals<1>(call, [](auto x) { return x * sigmoid_of(x); });
}

// (gradient, x)
Result<Values> silu_backward(const Call& call) {
  return compute_reals<2>(call, [](auto grad, auto x) {
    const auto sigmoid = sigmoid_of(x);
    return grad * sigmoid * (1 + x * (1 - sigmoid));
  });
}

// (gradient, x, threshold)
Result<Values> threshold_backward(const Call& call) {
  TANDEM_ASSIGN(const double threshold, call.number(2));
  return compute_reals<2>(call, [&](auto grad, auto x) {
    return static_cast<double>(x) <= threshold ? decltype(grad){0} : grad;
  });
}

constexpr Op kOps[] = {
    {"aten.gelu.default", gelu},
    {"aten.gelu_backward.default", gelu_backward},
    {"aten.sigmoid.default",
     [](const Call& call) { return compute_reals<1>(call, [](auto x) { return sigmoid_of(x); }); }},
    // These two take what sigmoid and tanh have made.
    {"aten.sigmoid_backward.default",
     [](const Call& call) {
       return compute_reals<2>(call, [](auto grad, auto out) { return grad * (1 - out) * out; });
     }},
    {"aten.silu.default", silu},
    {"aten.silu_backward.default", silu_backward},
    {"aten.tanh.default",
     [](const Call& call) { return compute_reals<1>(call, [](auto x) { return std::tanh(x); }); }},
    {"aten.tanh_backward.default",
     [](const Call& call) {
       return compute_reals<2>(call, [](auto grad, auto out) { return grad * (1 - out * out); });
     }},
    {"aten.threshold_backward.default", threshold_backward},
};

}  // namespace

std::span<const Op> activation_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
