#pragma once

#include <algorithm>
#include <array>
#include <tuple>

#include "base/try.hpp"
#include "graph/interpreter/call.hpp"

namespace tandem::graph::interpreter {

// What ops on elements share. As on PyTorch's GPUs, what is narrower than f32 is computed in f32 and rounded
// once, f64 in f64. Integers and truth values are computed in 64 bits.

/// A tensor or a number.
struct Operand {
  HostTensor value = HostTensor({}, DType::kF64);
  bool is_number = false;
};

/// Errors: kUnsupported for f8, of which PyTorch computes no elements either.
[[nodiscard]] Result<Operand> operand(const Call& call, std::size_t idx);

/// PyTorch's promotion. Numbers, and tensors without dims beside one with dims, decide only the kind: whether
/// the result is a truth value, an integer or a float.
/// Errors: kUnsupported where the result is of a type that tandem does not have.
[[nodiscard]] Result<DType> promoted(std::span<const Operand> operands);

/// The sizes that all broadcast to.
[[nodiscard]] Result<Dims> broadcast_sizes(std::span<const Operand> operands);

/// f32 for integers and truth values, of which functions of real numbers are taken in f32.
[[nodiscard]] inline DType real_type(DType dtype) {
  return is_floating(dtype) ? dtype : DType::kF32;
}

/// Calls `use` with a zero of the type in which elements of `dtype`, which is floating, are computed.
template <class Use>
auto with_real_type(DType dtype, const Use& use) {
  return dtype == DType::kF64 ? use(double{}) : use(float{});
}

/// The same for any type.
template <class Use>
auto with_element_type(DType dtype, const Use& use) {
  return is_floating(dtype) ? with_real_type(dtype, use) : use(std::int64_t{});
}

/// `compute` of the elements of all operands, each a T, broadcast to `sizes`.
template <class T, class Compute, std::size_t kCount>
HostTensor map(const std::array<Operand, kCount>& operands, const Dims& sizes, DType dtype,
               const Compute& compute) {
  std::array<std::vector<T>, kCount> values;
  for (std::size_t i = 0; i < kCount; ++i) {
    values[i] = elements<T>(broadcast(operands[i].value.view(), sizes));
  }
  for (std::size_t i = 0; i < values[0].size(); ++i) {
    values[0][i] = std::apply([&](const auto&... of) { return static_cast<T>(compute(of[i]...)); }, values);
  }
  return HostTensor::from(std::span<const T>(values[0]), sizes, dtype);
}

template <std::size_t kCount>
Result<std::array<Operand, kCount>> first_operands(const Call& call) {
  std::array<Operand, kCount> operands;
  for (std::size_t i = 0; i < kCount; ++i) {
    TANDEM_ASSIGN(operands[i], operand(call, i));
  }
  return operands;
}

/// What a function of the first kCount arguments makes, in their promoted type. `compute` takes floats,
/// doubles or 64-bit integers.
template <std::size_t kCount, class Compute>
Result<Values> compute_elements(const Call& call, const Compute& compute) {
  TANDEM_ASSIGN(const auto operands, first_operands<kCount>(call));
  TANDEM_TRY(call.named_is("alpha", 1));
  TANDEM_ASSIGN(const Dims sizes, broadcast_sizes(operands));
  TANDEM_ASSIGN(const DType dtype, promoted(operands));
  return one(with_element_type(
      dtype, [&](auto zero) { return map<decltype(zero)>(operands, sizes, dtype, compute); }));
}

/// The same for a function of real numbers: `compute` takes floats or doubles.
template <std::size_t kCount, class Compute>
Result<Values> compute_reals(const Call& call, const Compute& compute) {
  TANDEM_ASSIGN(const auto operands, first_operands<kCount>(call));
  TANDEM_ASSIGN(const Dims sizes, broadcast_sizes(operands));
  TANDEM_ASSIGN(DType dtype, promoted(operands));
  dtype = real_type(dtype);
  return one(
      with_real_type(dtype, [&](auto zero) { return map<decltype(zero)>(operands, sizes, dtype, compute); }));
}

}  // namespace tandem::graph::interpreter
