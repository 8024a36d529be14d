#include <cmath>
#include <functional>

#include "base/format.hpp"
#include "graph/interpreter/elementwise.hpp"
#include "graph/interpreter/ops.hpp"

namespace tandem::graph::interpreter {
namespace {

// Comparisons, truth values and what is chosen by them.

/// `operand` in the type in which it is compared: 0.1 beside a bf16 is the bf16 next to 0.1.
Operand rounded(const Operand& operand, DType dtype) {
  return {HostTensor::copy_of(operand.value.view(), dtype), operand.is_number};
}

/// A truth value of the first kCount arguments, in their promoted type.
template <std::size_t kCount, class Compute>
Result<Values> truth(const Call& call, const Compute& compute) {
  TANDEM_ASSIGN(auto operands, first_operands<kCount>(call));
  TANDEM_ASSIGN(const Dims sizes, broadcast_sizes(operands));
  TANDEM_ASSIGN(const DType dtype, promoted(operands));
  for (Operand& each : operands) each = rounded(each, dtype);
  return one(with_element_type(
      dtype, [&](auto zero) { return map<decltype(zero)>(operands, sizes, DType::kBool, compute); }));
}

template <class Compute>
Result<Values> compare(const Call& call) {
  return truth<2>(call, Compute());
}

Result<void> check_bits(DType dtype) {
  if (!is_floating(dtype)) return {};
  return failf(ErrorCode::kUnsupported, "an op on the bits of {}, need integers or truth values",
               to_string(dtype));
}

/// An op on bits: of integers, or of truth values, which are 0 and 1.
template <class Compute>
Result<Values> bits(const Call& call) {
  TANDEM_ASSIGN(const auto operands, first_operands<2>(call));
  TANDEM_ASSIGN(const Dims sizes, broadcast_sizes(operands));
  TANDEM_ASSIGN(const DType dtype, promoted(operands));
  TANDEM_TRY(check_bits(dtype));
  return one(map<std::int64_t>(operands, sizes, dtype, Compute()));
}

Result<Values> bitwise_not(const Call& call) {
  TANDEM_ASSIGN(const auto operands, first_operands<1>(call));
  const HostTensor& x = operands[0].value;
  TANDEM_TRY(check_bits(x.dtype()));
  if (x.dtype() == DType::kBool) return truth<1>(call, std::logical_not<>());
  return one(map<std::int64_t>(operands, x.sizes(), x.dtype(), std::bit_not<>()));
}

/// condition ? x : y, broadcast to `sizes`, in the type `dtype`.
HostTensor chosen(const HostTensor& condition, const Operand& x, const Operand& y, const Dims& sizes,
                  DType dtype) {
  const auto is_x = elements<float>(broadcast(condition.view(), sizes));
  return with_element_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    auto values = elements<T>(broadcast(y.value.view(), sizes));
    const auto others = elements<T>(broadcast(x.value.view(), sizes));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (is_x[i] != 0) values[i] = others[i];
    }
    return HostTensor::from(std::span<const T>(values), sizes, dtype);
  });
}

Result<Values> where(const Call& call) {
  TANDEM_ASSIGN(const HostTensor condition, call.tensor(0));
  TANDEM_ASSIGN(const Operand x, operand(call, 1));
  TANDEM_ASSIGN(const Operand y, operand(call, 2));
  TANDEM_ASSIGN(const DType dtype, promoted(std::array{x, y}));
  TANDEM_ASSIGN(Dims sizes, broadcast_sizes(std::array{x, y}));
  TANDEM_ASSIGN(sizes, broadcast_sizes(sizes, condition.sizes()));
  return one(chosen(condition, x, y, sizes, dtype));
}

// (x, mask, value)
Result<Values> masked_fill(const Call& call) {
  TANDEM_ASSIGN(const Operand x, operand(call, 0));
  TANDEM_ASSIGN(const HostTensor mask, call.tensor(1));
  TANDEM_ASSIGN(const Operand value, operand(call, 2));
  TANDEM_ASSIGN(const Dims sizes, broadcast_sizes(x.value.sizes(), mask.sizes()));
  return one(chosen(mask, value, x, sizes, x.value.dtype()));
}

constexpr Op kOps[] = {
    {"aten.bitwise_and.Scalar", bits<std::bit_and<>>},
    {"aten.bitwise_and.Tensor", bits<std::bit_and<>>},
    {"aten.bitwise_not.default", bitwise_not},
    {"aten.bitwise_or.Scalar", bits<std::bit_or<>>},
    {"aten.bitwise_or.Tensor", bits<std::bit_or<>>},
    {"aten.bitwise_xor.Tensor", bits<std::bit_xor<>>},
    {"aten.eq.Scalar", compare<std::equal_to<>>},
    {"aten.eq.Tensor", compare<std::equal_to<>>},
    {"aten.ge.Scalar", compare<std::greater_equal<>>},
    {"aten.ge.Tensor", compare<std::greater_equal<>>},
    {"aten.gt.Scalar", compare<std::greater<>>},
    {"aten.gt.Tensor", compare<std::greater<>>},
    {"aten.isinf.default",
     [](const Call& call) {
       return truth<1>(call, [](auto x) { return std::isinf(static_cast<double>(x)); });
     }},
    {"aten.isnan.default", [](const Call& call) { return truth<1>(call, [](auto x) { return x != x; }); }},
    {"aten.le.Scalar", compare<std::less_equal<>>},
    {"aten.le.Tensor", compare<std::less_equal<>>},
    {"aten.logical_and.default", compare<std::logical_and<>>},
    {"aten.logical_not.default", [](const Call& call) { return truth<1>(call, std::logical_not<>()); }},
    {"aten.logical_or.default", compare<std::logical_or<>>},
    {"aten.logical_xor.default",
     [](const Call& call) { return truth<2>(call, [](auto x, auto y) { return (x != 0) != (y != 0); }); }},
    {"aten.lt.Scalar", compare<std::less<>>},
    {"aten.lt.Tensor", compare<std::less<>>},
    {"aten.masked_fill.Scalar", masked_fill},
    {"aten.masked_fill.Tensor", masked_fill},
    {"aten.ne.Scalar", compare<std::not_equal_to<>>},
    {"aten.ne.Tensor", compare<std::not_equal_to<>>},
    {"aten.where.Scalar", where},
    {"aten.where.ScalarOther", where},
    {"aten.where.ScalarSelf", where},
    {"aten.where.self", where},
};

}  // namespace

std::span<const Op> comparison_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
