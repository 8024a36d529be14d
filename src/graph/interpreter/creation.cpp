#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/interpreter/elementwise.hpp"
#include "graph/interpreter/numbers.hpp"
#include "graph/interpreter/ops.hpp"
#include "graph/ir/ops.hpp"

namespace tandem::graph::interpreter {
namespace {

// Tensors that follow from no other's elements.

HostTensor filled(const Dims& sizes, DType dtype, const HostTensor& number) {
  return HostTensor::copy_of(broadcast(HostTensor::copy_of(number.view(), dtype).view(), sizes), dtype);
}

/// The type of a tensor that is filled with a number, where the call names none.
DType default_type(const Operand& number) {
  return number.value.dtype() == DType::kF64 ? DType::kF32 : number.value.dtype();
}

Result<Operand> number_at(const Call& call, std::size_t idx) {
  TANDEM_TRY(call.number(idx));
  return operand(call, idx);
}

// (sizes, number)
Result<Values> full(const Call& call) {
  TANDEM_ASSIGN(const auto shape, call.integers(0));
  TANDEM_ASSIGN(const Dims sizes, to_dims(shape));
  TANDEM_ASSIGN(const Operand number, number_at(call, 1));
  TANDEM_ASSIGN(const DType dtype, call.dtype_or(call.named("dtype"), default_type(number)));
  return one(filled(sizes, dtype, number.value));
}

// (like, number)
Result<Values> full_like(const Call& call) {
  TANDEM_ASSIGN(const HostTensor like, call.tensor(0));
  TANDEM_ASSIGN(const Operand number, number_at(call, 1));
  TANDEM_ASSIGN(const DType dtype, call.dtype_or(call.named("dtype"), like.dtype()));
  return one(filled(like.sizes(), dtype, number.value));
}

Result<Values> scalar_tensor(const Call& call) {
  TANDEM_ASSIGN(const Operand number, number_at(call, 0));
  TANDEM_ASSIGN(const DType dtype, call.dtype_or(call.named("dtype"), DType::kF32));
  return one(filled({}, dtype, number.value));
}

HostTensor all_of(double number, const Dims& sizes, DType dtype) {
  return filled(sizes, dtype, HostTensor::from(std::span<const double>(&number, 1), {}, DType::kF64));
}

/// (sizes). Memory that is not set, which a program overwrites, is zero here.
template <int kNumber>
Result<Values> of_sizes(const Call& call) {
  TANDEM_ASSIGN(const auto shape, call.integers(0));
  TANDEM_ASSIGN(const Dims sizes, to_dims(shape));
  TANDEM_ASSIGN(const DType dtype, call.dtype_or(call.named("dtype"), DType::kF32));
  return one(all_of(kNumber, sizes, dtype));
}

template <int kNumber>
Result<Values> of_like(const Call& call) {
  TANDEM_ASSIGN(const HostTensor like, call.tensor(0));
  TANDEM_ASSIGN(const DType dtype, call.dtype_or(call.named("dtype"), like.dtype()));
  return one(all_of(kNumber, like.sizes(), dtype));
}

HostTensor steps(double start, double step, std::int64_t count, DType dtype) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = start + step * static_cast<double>(i);
  return HostTensor::from(std::span<const double>(values), {count}, dtype);
}

// (count), start and step by name
Result<Values> iota(const Call& call) {
  TANDEM_ASSIGN(const std::int64_t count, call.integer(0));
  TANDEM_ASSIGN(const double start, call.number_or(call.named("start"), 0));
  TANDEM_ASSIGN(const double step, call.number_or(call.named("step"), 1));
  TANDEM_ASSIGN(const DType dtype, call.dtype_or(call.named("dtype"), DType::kI64));
  if (count < 0) return failf(ErrorCode::kInvalidArgument, "counts to {}", count);
  return one(steps(start, step, count, dtype));
}

/// (end), (start, end) or (start, end, step)
Result<Values> arange(const Call& call) {
  DType otherwise = DType::kI64;
  for (std::size_t i = 0; i < std::min<std::size_t>(call.size(), 3); ++i) {
    TANDEM_ASSIGN(const Operand number, number_at(call, i));
    if (is_floating(number.value.dtype())) otherwise = DType::kF32;
  }
  TANDEM_ASSIGN(double start, call.number(0));
  TANDEM_ASSIGN(double end, call.number_or(call.argument(1), start));
  if (call.argument(1) == nullptr) start = 0;
  TANDEM_ASSIGN(const double step, call.number_or(call.argument(2), 1));
  TANDEM_ASSIGN(const DType dtype, call.dtype_or(call.named("dtype"), otherwise));
  const double count = std::ceil((end - start) / step);
  if (!(count >= 0)) return failf(ErrorCode::kInvalidArgument, "from {} to {} by {}", start, end, step);
  return one(steps(start, step, static_cast<std::int64_t>(count), dtype));
}

// ---- random numbers: those of a call follow from its seed, and seeds from their place and the rank

HostTensor made_seeds(const Call& call, const Dims& sizes) {
  Numbers numbers(0, call.ranks().group.rank(), call.node().target());
  std::vector<double> values(static_cast<std::size_t>(numel(sizes)));
  for (double& value : values) value = std::floor(numbers.next() * 0x1p53);
  return HostTensor::from(std::span<const double>(values), sizes, DType::kI64);
}

Result<Values> seed(const Call& call) {
  return one(made_seeds(call, {}));
}

// (count)
Result<Values> seeds(const Call& call) {
  TANDEM_ASSIGN(const std::int64_t count, call.integer(0));
  if (count < 0) return failf(ErrorCode::kInvalidArgument, "makes {} seeds", count);
  return one(made_seeds(call, {count}));
}

// (seeds, idx)
Result<Values> lookup_seed(const Call& call) {
  TANDEM_ASSIGN(const HostTensor all, call.tensor(0));
  TANDEM_ASSIGN(const std::int64_t idx, call.integer(1));
  if (idx < 0 || idx >= all.numel()) {
    return failf(ErrorCode::kInvalidArgument, "takes seed {} of {}", idx, all.numel());
  }
  const auto values = elements<std::int64_t>(all.view());
  return one(HostTensor::from(std::span(&values[static_cast<std::size_t>(idx)], 1), {}, DType::kI64));
}

/// The stream of the seed in this place.
Result<Numbers> numbers_of(const Call& call, std::size_t place, std::string_view name) {
  TANDEM_ASSIGN(const HostTensor seed, call.tensor(place));
  if (seed.numel() != 1) return failf(ErrorCode::kInvalidArgument, "{} seeds, need one", seed.numel());
  return Numbers(static_cast<std::uint64_t>(elements<std::int64_t>(seed.view())[0]), 0, name);
}

Result<HostTensor> random_reals(Numbers numbers, std::string_view mode, const Dims& sizes, DType dtype) {
  if (mode != "rand" && mode != "randn") {
    return failf(ErrorCode::kUnsupported, "random numbers by '{}', need rand or randn", mode);
  }
  std::vector<float> values(static_cast<std::size_t>(numel(sizes)));
  for (float& value : values) {
    const double uniform = std::floor(numbers.next() * 0x1p24) * 0x1p-24;  // below 1 in f32 too
    const double angle = 2 * std::numbers::pi * numbers.next();
    const double normal = std::sqrt(-2 * std::log1p(-uniform)) * std::cos(angle);
    value = static_cast<float>(mode == "rand" ? uniform : normal);
  }
  return HostTensor::from(std::span<const float>(values), sizes, dtype);
}

// (sizes, seed, "rand" or "randn")
Result<Values> random(const Call& call) {
  TANDEM_ASSIGN(const auto shape, call.integers(0));
  TANDEM_ASSIGN(const Dims sizes, to_dims(shape));
  TANDEM_ASSIGN(const auto mode, call.text(2));
  TANDEM_ASSIGN(const Numbers numbers, numbers_of(call, 1, mode));
  TANDEM_ASSIGN(HostTensor values, random_reals(numbers, mode, sizes, DType::kF32));
  return one(std::move(values));
}

/// (sizes): without a seed, numbers follow from the node's name, which passes keep.
Result<Values> random_of_name(const Call& call) {
  TANDEM_ASSIGN(const auto shape, call.integers(0));
  TANDEM_ASSIGN(const Dims sizes, to_dims(shape));
  TANDEM_ASSIGN(const DType dtype, call.dtype_or(call.named("dtype"), DType::kF32));
  const std::string_view mode = call.node().is_call_of("aten.rand.default") ? "rand" : "randn";
  const Numbers numbers(0, call.ranks().group.rank(), call.node().name());
  TANDEM_ASSIGN(HostTensor values, random_reals(numbers, mode, sizes, dtype));
  return one(std::move(values));
}

// (least, one more than the most, sizes, seed)
Result<Values> random_integers(const Call& call) {
  TANDEM_ASSIGN(const double least, call.number(0));
  TANDEM_ASSIGN(const double end, call.number(1));
  TANDEM_ASSIGN(const auto shape, call.integers(2));
  TANDEM_ASSIGN(const Dims sizes, to_dims(shape));
  TANDEM_ASSIGN(Numbers numbers, numbers_of(call, 3, "randint"));
  if (!(least < end)) return failf(ErrorCode::kInvalidArgument, "from {} to below {}", least, end);
  std::vector<double> values(static_cast<std::size_t>(numel(sizes)));
  for (double& value : values) value = least + std::floor(numbers.next() * (end - least));
  return one(HostTensor::from(std::span<const double>(values), sizes, DType::kI64));
}

constexpr Op kOps[] = {
    {"aten.arange.default", arange},
    {"aten.arange.start", arange},
    {"aten.arange.start_step", arange},
    {"aten.empty.memory_format", of_sizes<0>},
    {"aten.empty_like.default", of_like<0>},
    {graph::op::kFull, full},
    {"aten.full_like.default", full_like},
    {"aten.ones.default", of_sizes<1>},
    {"aten.ones_like.default", of_like<1>},
    {"aten.rand.default", random_of_name},
    {"aten.randn.default", random_of_name},
    {"aten.scalar_tensor.default", scalar_tensor},
    {"aten.zeros.default", of_sizes<0>},
    {"aten.zeros_like.default", of_like<0>},
    {"prims.inductor_lookup_seed.default", lookup_seed},
    {"prims.inductor_randint.default", random_integers},
    {"prims.inductor_random.default", random},
    {"prims.inductor_seed.default", seed},
    {"prims.inductor_seeds.default", seeds},
    {"prims.iota.default", iota},
};

}  // namespace

std::span<const Op> creation_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
