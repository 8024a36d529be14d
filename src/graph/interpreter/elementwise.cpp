#include "graph/interpreter/elementwise.hpp"

#include <cmath>
#include <cstdint>

#include "base/format.hpp"
#include "graph/interpreter/ops.hpp"
#include "graph/ir/ops.hpp"

namespace tandem::graph::interpreter {
namespace {

Result<void> check_computes(DType dtype) {
  if (!is_f8(dtype)) return {};
  return failf(ErrorCode::kUnsupported, "computes no elements of {}", to_string(dtype));
}

/// PyTorch's kinds of types, each wider than those before.
enum class Kind : std::uint8_t { kBool, kInteger, kFloating };

Kind kind_of(DType dtype) {
  if (dtype == DType::kBool) return Kind::kBool;
  return is_floating(dtype) ? Kind::kFloating : Kind::kInteger;
}

/// Of two types of equal weight.
Result<DType> wider(DType x, DType y) {
  if (x == y) return x;
  if (kind_of(x) != kind_of(y)) return kind_of(x) > kind_of(y) ? x : y;
  if (is_floating(x)) {  // f32 for f16 with bf16
    return x == DType::kF64 || y == DType::kF64 ? DType::kF64 : DType::kF32;
  }
  const bool have_signs = x != DType::kU32 && y != DType::kU32;
  if (have_signs && size_bytes(x) != size_bytes(y)) return size_bytes(x) > size_bytes(y) ? x : y;
  return failf(ErrorCode::kUnsupported, "{} with {} is of a type that tandem does not have", to_string(x),
               to_string(y));
}

/// A real number is of f32, as PyTorch's default type says.
DType own_type(const Operand& operand) {
  const DType dtype = operand.value.dtype();
  return operand.is_number && is_floating(dtype) ? DType::kF32 : dtype;
}

int weight_of(const Operand& operand) {
  if (operand.is_number) return 0;
  return operand.value.sizes().empty() ? 1 : 2;
}

Result<Values> convert_element_type(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const DType dtype, call.dtype_or(call.argument(1, "dtype"), x.dtype()));
  // Unlike PyTorch's an f8 that is too large becomes the largest one: captured programs clamp before.
  return one(HostTensor::copy_of(x.view(), dtype));
}

/// Argument 1 and argument 2, either of which may be missing.
Result<Values> clamp(const Call& call) {
  TANDEM_ASSIGN(const double least, call.number_or(call.argument(1, "min"), -INFINITY));
  TANDEM_ASSIGN(const double most, call.number_or(call.argument(2, "max"), INFINITY));
  return compute_elements<1>(call, [&](auto x) {  // hands a NaN through
    using T = decltype(x);
    if (static_cast<double>(x) < least) return static_cast<T>(least);
    return static_cast<double>(x) > most ? static_cast<T>(most) : x;
  });
}

template <class T>
T remainder(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    if (y == 0) return 0;
    const T rest = y == -1 ? 0 : x % y;
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
  } else {
    const T rest = std::fmod(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
  }
}

/// x / y, rounded down.
template <class T>
T floor_divide(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    return y == 0 ? 0 : (x - remainder(x, y)) / y;
  } else {
    return std::floor(x / y);
  }
}

Result<Values> floor_division(const Call& call) {
  return compute_elements<2>(call, [](auto x, auto y) { return floor_divide(x, y); });
}

Result<Values> division(const Call& call) {
  return compute_reals<2>(call, std::divides<>());
}

Result<Values> division_with_mode(const Call& call) {
  const auto* const mode = call.named("rounding_mode");
  if (mode == nullptr) return division(call);
  const auto* const name = std::get_if<std::string>(&mode->value);
  if (name != nullptr && *name == "floor") return floor_division(call);
  if (name != nullptr && *name == "trunc") {
    return compute_elements<2>(call, [](auto x, auto y) {
      if constexpr (std::is_integral_v<decltype(x)>)
        return y == 0 ? 0 : x / y;
      else
        return std::trunc(x / y);
    });
  }
  return failf(ErrorCode::kUnsupported, "a rounding mode that is neither floor nor trunc");
}

// Integers wrap around, as PyTorch's do.

template <class T>
using Wrapping = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;

Result<Values> sum(const Call& call) {
  return compute_elements<2>(call, [](auto x, auto y) {
    using W = Wrapping<decltype(x)>;
    return static_cast<W>(x) + static_cast<W>(y);
  });
}

Result<Values> difference(const Call& call) {
  return compute_elements<2>(call, [](auto x, auto y) {
    using W = Wrapping<decltype(x)>;
    return static_cast<W>(x) - static_cast<W>(y);
  });
}

Result<Values> product(const Call& call) {
  return compute_elements<2>(call, [](auto x, auto y) {
    using W = Wrapping<decltype(x)>;
    return static_cast<W>(x) * static_cast<W>(y);
  });
}

Result<Values> power(const Call& call) {
  return compute_elements<2>(call, [](auto x, auto exponent) { return std::pow(x, exponent); });
}

// These two hand a NaN through.

Result<Values> larger(const Call& call) {
  return compute_elements<2>(call, [](auto x, auto y) { return x < y || y != y ? y : x; });
}

Result<Values> smaller(const Call& call) {
  return compute_elements<2>(call, [](auto x, auto y) { return x > y || y != y ? y : x; });
}

/// An op whose one operand is a real number.
template <class Compute>
Result<Values> real(const Call& call, const Compute& compute) {
  return compute_reals<1>(call, compute);
}

/// One whose result is of the type of its one operand.
template <class Compute>
Result<Values> same_type(const Call& call, const Compute& compute) {
  return compute_elements<1>(call, compute);
}

/// A function that rounds: integers stay as they are.
template <class Compute>
Result<Values> rounding(const Call& call, const Compute& compute) {
  return compute_elements<1>(call, [&](auto x) {
    if constexpr (std::is_integral_v<decltype(x)>)
      return x;
    else
      return compute(x);
  });
}

constexpr Op kOps[] = {
    {"aten.abs.default",
     [](const Call& call) { return same_type(call, [](auto x) { return x < 0    ? -x
                                                                       : x == 0 ? 0
                                                                                : x; }); }},
    {"aten.add.Scalar", sum},
    {graph::op::kAdd, sum},
    {"aten.ceil.default",
     [](const Call& call) { return rounding(call, [](auto x) { return std::ceil(x); }); }},
    {"aten.clamp.default", clamp},
    {"aten.clamp_max.default", smaller},
    {"aten.clamp_min.default", larger},
    {"aten.cos.default", [](const Call& call) { return real(call, [](auto x) { return std::cos(x); }); }},
    {"aten.div.Scalar", division},
    {"aten.div.Tensor", division},
    {"aten.div.Tensor_mode", division_with_mode},
    {"aten.erf.default", [](const Call& call) { return real(call, [](auto x) { return std::erf(x); }); }},
    {"aten.exp.default", [](const Call& call) { return real(call, [](auto x) { return std::exp(x); }); }},
    {"aten.exp2.default", [](const Call& call) { return real(call, [](auto x) { return std::exp2(x); }); }},
    {"aten.expm1.default", [](const Call& call) { return real(call, [](auto x) { return std::expm1(x); }); }},
    {"aten.floor.default",
     [](const Call& call) { return rounding(call, [](auto x) { return std::floor(x); }); }},
    {"aten.floor_divide.default", floor_division},
    {"aten.log.default", [](const Call& call) { return real(call, [](auto x) { return std::log(x); }); }},
    {"aten.log1p.default", [](const Call& call) { return real(call, [](auto x) { return std::log1p(x); }); }},
    {"aten.log2.default", [](const Call& call) { return real(call, [](auto x) { return std::log2(x); }); }},
    {"aten.maximum.default", larger},
    {"aten.minimum.default", smaller},
    {"aten.mul.Scalar", product},
    {graph::op::kMul, product},
    {"aten.neg.default", [](const Call& call) { return same_type(call, std::negate<>()); }},
    {"aten.pow.Scalar", power},
    {"aten.pow.Tensor_Scalar", power},
    {"aten.pow.Tensor_Tensor", power},
    {"aten.reciprocal.default", [](const Call& call) { return real(call, [](auto x) { return 1 / x; }); }},
    {"aten.relu.default",
     [](const Call& call) { return same_type(call, [](auto x) { return x < 0 ? 0 : x; }); }},
    {"aten.remainder.Scalar",
     [](const Call& call) {
       return compute_elements<2>(call, [](auto x, auto y) { return remainder(x, y); });
     }},
    {"aten.remainder.Tensor",
     [](const Call& call) {
       return compute_elements<2>(call, [](auto x, auto y) { return remainder(x, y); });
     }},
    {"aten.round.default",
     [](const Call& call) { return rounding(call, [](auto x) { return std::nearbyint(x); }); }},
    {"aten.rsqrt.default",
     [](const Call& call) { return real(call, [](auto x) { return 1 / std::sqrt(x); }); }},
    {"aten.sign.default",
     [](const Call& call) { return same_type(call, [](auto x) { return x > 0   ? 1
                                                                       : x < 0 ? -1
                                                                               : 0; }); }},
    {"aten.sin.default", [](const Call& call) { return real(call, [](auto x) { return std::sin(x); }); }},
    {"aten.sqrt.default", [](const Call& call) { return real(call, [](auto x) { return std::sqrt(x); }); }},
    {"aten.sub.Scalar", difference},
    {"aten.sub.Tensor", difference},
    {"aten.trunc.default",
     [](const Call& call) { return rounding(call, [](auto x) { return std::trunc(x); }); }},
    {graph::op::kConvert, convert_element_type},
    {"prims.fma.default",
     [](const Call& call) {
       return compute_reals<3>(call, [](auto x, auto y, auto z) { return std::fma(x, y, z); });
     }},
};

}  // namespace

Result<Operand> operand(const Call& call, std::size_t idx) {
  if (const auto* argument = call.argument(idx); argument != nullptr) {
    if (const auto whole = argument->integer()) {
      return Operand{HostTensor::from(std::span(&*whole, 1), {}, DType::kI64), true};
    }
    if (const auto number = number_of(*argument)) {
      const bool is_flag = std::holds_alternative<bool>(argument->value);
      return Operand{HostTensor::from(std::span(&*number, 1), {}, is_flag ? DType::kBool : DType::kF64),
                     true};
    }
  }
  TANDEM_ASSIGN(HostTensor value, call.tensor(idx));
  TANDEM_TRY(check_computes(value.dtype()));
  return Operand{std::move(value), false};
}

Result<DType> promoted(std::span<const Operand> operands) {
  std::optional<DType> result;
  for (const int weight : {2, 1, 0}) {
    std::optional<DType> of_weight;
    for (const Operand& operand : operands) {
      if (weight_of(operand) != weight) continue;
      of_weight = own_type(operand);
      break;
    }
    for (const Operand& operand : operands) {
      if (weight_of(operand) != weight) continue;
      TANDEM_ASSIGN(of_weight, wider(*of_weight, own_type(operand)));
    }
    // What weighs less counts only where it is of a wider kind.
    if (of_weight && (!result || kind_of(*of_weight) > kind_of(*result))) result = of_weight;
  }
  return *result;
}

Result<Dims> broadcast_sizes(std::span<const Operand> operands) {
  Dims sizes;
  for (const Operand& operand : operands) {
    TANDEM_ASSIGN(sizes, broadcast_sizes(sizes, operand.value.sizes()));
  }
  return sizes;
}

std::span<const Op> elementwise_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
