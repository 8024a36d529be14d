#include <algorithm>
#include <cmath>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/interpreter/ops.hpp"
#include "graph/ir/ops.hpp"

namespace tandem::graph::interpreter {
namespace {

// As on PyTorch's GPUs: what is narrower than f32 is computed in f32 and rounded once, f64 in f64.

Result<void> check_computes(DType dtype) {
  if (dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16)
    return {};
  return failf(ErrorCode::kUnsupported, "computes f64, f32, f16 and bf16 only, got {}", to_string(dtype));
}

/// PyTorch's promotion of floating types: the wider one; f32 for f16 with bf16.
DType wider(DType x, DType y) {
  if (x == y) return x;
  return x == DType::kF64 || y == DType::kF64 ? DType::kF64 : DType::kF32;
}

/// A tensor or a number. Numbers, and tensors without dims beside one with dims, do not decide the type.
struct Operand {
  HostTensor value;
  bool is_number = false;
};

Result<Operand> operand(const Call& call, std::size_t idx) {
  if (const auto* argument = call.argument(idx); argument != nullptr) {
    if (const auto number = number_of(*argument)) {
      return Operand{HostTensor::from(std::span(&*number, 1), {}, DType::kF64), true};
    }
  }
  TANDEM_ASSIGN(HostTensor value, call.tensor(idx));
  TANDEM_TRY(check_computes(value.dtype()));
  return Operand{std::move(value), false};
}

DType promote(const Operand& x, const Operand& y) {
  const auto weight = [](const Operand& operand) {
    return operand.is_number ? 0 : operand.value.sizes().empty() ? 1 : 2;
  };
  if (weight(x) != weight(y)) return (weight(x) > weight(y) ? x : y).value.dtype();
  return wider(x.value.dtype(), y.value.dtype());
}

template <class T, class Compute>
HostTensor map(const HostTensor& x, const Compute& compute) {
  std::vector<T> values = elements<T>(x.view());
  std::transform(values.begin(), values.end(), values.begin(), compute);
  return HostTensor::from(std::span<const T>(values), x.sizes(), x.dtype());
}

template <class T, class Compute>
HostTensor map(const Operand& x, const Operand& y, const Dims& sizes, DType dtype, const Compute& compute) {
  std::vector<T> values = elements<T>(broadcast(x.value.view(), sizes));
  const std::vector<T> others = elements<T>(broadcast(y.value.view(), sizes));
  std::transform(values.begin(), values.end(), others.begin(), values.begin(), compute);
  return HostTensor::from(std::span<const T>(values), sizes, dtype);
}

/// `compute` takes an element, as float or as double.
template <class Compute>
Result<Values> unary(const Call& call, const Compute& compute) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_TRY(check_computes(x.dtype()));
  return one(x.dtype() == DType::kF64 ? map<double>(x, compute) : map<float>(x, compute));
}

/// `compute` takes an element and the number that is argument 1, both as float or both as double.
template <class Compute>
Result<Values> with_number(const Call& call, const Compute& compute) {
  TANDEM_ASSIGN(const double number, call.number(1));
  TANDEM_TRY(call.named_is("alpha", 1));
  return unary(call, [&](auto x) { return compute(x, static_cast<decltype(x)>(number)); });
}

template <class Compute>
Result<Values> binary(const Call& call, const Compute& compute) {
  TANDEM_ASSIGN(const Operand x, operand(call, 0));
  TANDEM_ASSIGN(const Operand y, operand(call, 1));
  TANDEM_TRY(call.named_is("alpha", 1));
  TANDEM_ASSIGN(const Dims sizes, broadcast_sizes(x.value.sizes(), y.value.sizes()));
  const DType dtype = promote(x, y);
  return one(dtype == DType::kF64 ? map<double>(x, y, sizes, dtype, compute)
                                  : map<float>(x, y, sizes, dtype, compute));
}

/// Unlike PyTorch's an f8 that is too large becomes the largest one: captured programs clamp before.
Result<Values> convert_element_type(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const DType dtype, call.dtype_or(call.argument(1), x.dtype()));
  return one(HostTensor::copy_of(x.view(), dtype));
}

Result<Values> full(const Call& call) {
  TANDEM_ASSIGN(const auto shape, call.integers(0));
  TANDEM_ASSIGN(const Dims sizes, to_dims(shape));
  TANDEM_ASSIGN(const double number, call.number(1));
  TANDEM_ASSIGN(const DType dtype, call.dtype_or(call.named("dtype"), DType::kF32));
  const HostTensor scalar = HostTensor::from(std::span(&number, 1), {}, dtype);
  return one(HostTensor::copy_of(broadcast(scalar.view(), sizes), dtype));
}

constexpr Op kOps[] = {
    {"aten.abs.default", [](const Call& call) { return unary(call, [](auto x) { return std::abs(x); }); }},
    {"aten.add.Scalar", [](const Call& call) { return with_number(call, std::plus<>()); }},
    {graph::op::kAdd, [](const Call& call) { return binary(call, std::plus<>()); }},
    // These two hand a NaN through.
    {"aten.clamp_max.default",
     [](const Call& call) {
       return with_number(call, [](auto x, auto most) { return x > most ? most : x; });
     }},
    {"aten.clamp_min.default",
     [](const Call& call) {
       return with_number(call, [](auto x, auto least) { return x < least ? least : x; });
     }},
    {"aten.div.Tensor", [](const Call& call) { return binary(call, std::divides<>()); }},
    {"aten.exp.default", [](const Call& call) { return unary(call, [](auto x) { return std::exp(x); }); }},
    {"aten.exp2.default", [](const Call& call) { return unary(call, [](auto x) { return std::exp2(x); }); }},
    {"aten.floor.default",
     [](const Call& call) { return unary(call, [](auto x) { return std::floor(x); }); }},
    {graph::op::kFull, full},
    {"aten.log2.default", [](const Call& call) { return unary(call, [](auto x) { return std::log2(x); }); }},
    {graph::op::kMul, [](const Call& call) { return binary(call, std::multiplies<>()); }},
    {"aten.neg.default", [](const Call& call) { return unary(call, std::negate<>()); }},
    {"aten.pow.Tensor_Scalar",
     [](const Call& call) {
       return with_number(call, [](auto x, auto exponent) { return std::pow(x, exponent); });
     }},
    {"aten.reciprocal.default", [](const Call& call) { return unary(call, [](auto x) { return 1 / x; }); }},
    {"aten.relu.default", [](const Call& call) { return unary(call, [](auto x) { return x < 0 ? 0 : x; }); }},
    {"aten.rsqrt.default",
     [](const Call& call) { return unary(call, [](auto x) { return 1 / std::sqrt(x); }); }},
    {"aten.sub.Tensor", [](const Call& call) { return binary(call, std::minus<>()); }},
    {graph::op::kConvert, convert_element_type},
};

}  // namespace

std::span<const Op> elementwise_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
