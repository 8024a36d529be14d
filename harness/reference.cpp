#include "harness/reference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tandem/base/convert.hpp>

#include "harness/failure.hpp"

namespace tandem::harness {
namespace {

// A global tensor, rounded to the problem's type as every rank sees it, then widened.
std::vector<double> widened(const Problem& problem, const OperandSource& source, const Operand& operand) {
  const Dims sizes = sizes_of(problem, operand);
  const Tensor rounded = Tensor::host(sizes, problem.dtype);
  source.read(operand, {0, {0, sizes[0]}}, rounded.view());
  std::vector<double> values(static_cast<std::size_t>(numel(sizes)));
  take(convert(rounded.view(), TensorView::contiguous(values.data(), sizes, DType::kF64)));
  return values;
}

std::vector<double> transposed(const std::vector<double>& values, std::int64_t rows, std::int64_t columns) {
  std::vector<double> result(values.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      result[static_cast<std::size_t>(column * rows + row)] =
          values[static_cast<std::size_t>(row * columns + column)];
    }
  }
  return result;
}

struct Place {
  std::int64_t row = 0;
  std::int64_t column = 0;
};

// Where element `element` of a part lies in the whole result, leading dims as one.
Place place_of(const Problem& problem, int i, const Window& window, const TensorView& part,
               std::int64_t element) {
  const Dims whole = problem.result_sizes(i);
  const Dims strides = contiguous_strides(whole);
  std::int64_t flat = 0;
  for (int d = part.dim() - 1; d >= 0; --d) {
    const std::int64_t offset = d == window.dim ? window.shard.offset : 0;
    flat += (element % part.size(d) + offset) * strides[d];
    element /= part.size(d);
  }
  return {flat / whole.back(), flat % whole.back()};
}

void compare_element(int i, const Place& place, double got, const Expected& expected, Wrong& wrong) {
  if (is_right(got, expected)) return;
  wrong.add(fmt::format("result {}, row {}, column {}: got {}, need {} +- {:.3g}", i, place.row, place.column,
                        got, expected.value, expected.tolerance));
}

PartialSum sum_of(std::span<const double> row, std::span<const double> column, const Shard& shard) {
  PartialSum sum;
  for (std::int64_t i = shard.offset; i < shard.offset + shard.size; ++i) {
    const double product = row[static_cast<std::size_t>(i)] * column[static_cast<std::size_t>(i)];
    sum.value += product;
    sum.magnitude += std::abs(product);
  }
  return sum;
}

// The largest error of a rounding where the relative bound does not hold.
double smallest_rounding(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3:
      return std::ldexp(1.0, -10);
    case DType::kF8E5M2:
      return std::ldexp(1.0, -17);
    case DType::kF16:
      return std::ldexp(1.0, -25);
    default:
      return 1e-37;
  }
}

}  // namespace

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return std::ldexp(1.0, -8);
    case DType::kF16:
      return std::ldexp(1.0, -11);
    case DType::kF8E4M3:
      return std::ldexp(1.0, -4);
    case DType::kF8E5M2:
      return std::ldexp(1.0, -3);
    default:
      return std::ldexp(1.0, -24);
  }
}

double rounding_error(DType dtype, double value) {
  return std::max(1.01 * unit_roundoff(dtype) * std::abs(value), smallest_rounding(dtype));
}

Expected expect(const Problem& problem, std::span<const double> row, std::span<const double> column,
                double bias) {
  const double u32 = std::ldexp(1.0, -24);
  const double u = unit_roundoff(problem.dtype);
  const double tiny = smallest_rounding(problem.dtype);
  const auto k = static_cast<std::int64_t>(row.size());
  Expected expected;
  double magnitude = 0;
  double roundings = 0;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const PartialSum partial = sum_of(row, column, shard_of(k, problem.ranks, rank));
    magnitude += partial.magnitude;
    expected.value += partial.value;
    roundings += u * std::abs(partial.value) + tiny;
  }
  expected.tolerance = static_cast<double>(k + problem.ranks + 4) * u32 * (magnitude + std::abs(bias));
  if (problem.op == Op::kMatmulReduceScatter) expected.tolerance += 1.01 * roundings;
  if (problem.reduce == coll::ReduceOp::kAvg) {
    expected.value /= problem.ranks;
    expected.tolerance /= problem.ranks;
  }
  expected.value += bias;
  expected.tolerance += 1.01 * u * std::abs(expected.value) + tiny;
  return expected;
}

bool is_right(double got, const Expected& expected) {
  return std::abs(got - expected.value) <= expected.tolerance;
}

Reference::Reference(const Problem& problem, const OperandSource& source) : problem_(problem) {
  a_ = widened(problem, source, {OperandKind::kA});
  for (int i = 0; i < static_cast<int>(problem.n.size()); ++i) {
    const std::int64_t n = problem.n[static_cast<std::size_t>(i)];
    b_.push_back(transposed(widened(problem, source, {OperandKind::kB, i}), problem.k(), n));
    bias_.push_back(problem.bias ? widened(problem, source, {OperandKind::kBias, i})
                                 : std::vector<double>(static_cast<std::size_t>(n)));
  }
}

std::span<const double> Reference::row_of_a(std::int64_t row) const {
  const auto k = static_cast<std::size_t>(problem_.k());
  return std::span(a_).subspan(static_cast<std::size_t>(row) * k, k);
}

std::span<const double> Reference::column_of_b(int i, std::int64_t column) const {
  const auto k = static_cast<std::size_t>(problem_.k());
  return std::span(b_[static_cast<std::size_t>(i)]).subspan(static_cast<std::size_t>(column) * k, k);
}

double Reference::bias_at(int i, std::int64_t column) const {
  return bias_[static_cast<std::size_t>(i)][static_cast<std::size_t>(column)];
}

PartialSum Reference::partial_sum(int rank, int i, std::int64_t row, std::int64_t column) const {
  return sum_of(row_of_a(row), column_of_b(i, column), shard_of(problem_.k(), problem_.ranks, rank));
}

void Reference::compare(int i, const Window& window, const TensorView& part, Wrong& wrong) const {
  for (std::int64_t element = 0; element < part.numel(); ++element) {
    const Place place = place_of(problem_, i, window, part, element);
    const Expected expected =
        expect(problem_, row_of_a(place.row), column_of_b(i, place.column), bias_at(i, place.column));
    compare_element(i, place, element_as_f64(part, element), expected, wrong);
  }
}

void compare_samples(const Problem& problem, int i, const Window& window, const TensorView& part,
                     std::int64_t num_samples, Wrong& wrong) {
  const GeneratedTensors source(problem);
  const std::int64_t count = std::min(part.numel(), num_samples);
  for (std::int64_t sample = 0; sample < count; ++sample) {
    const std::int64_t element = sample * part.numel() / count + (part.numel() / count) * (sample % 7) / 7;
    const Place place = place_of(problem, i, window, part, element);
    const Expected expected = expect(problem, source.row_of_a(place.row), source.column_of_b(i, place.column),
                                     source.bias_at(i, place.column));
    compare_element(i, place, element_as_f64(part, element), expected, wrong);
  }
}

void Reference::compare_gathered(const TensorView& gathered, Wrong& wrong) const {
  for (std::int64_t element = 0; element < gathered.numel(); ++element) {
    const double got = element_as_f64(gathered, element);
    const double need = a_[static_cast<std::size_t>(element)];
    if (got != need) wrong.add(fmt::format("gathered a, element {}: got {}, need {}", element, got, need));
  }
}

void compare_runs(const TwoRuns& runs, const std::string& what, Wrong& wrong) {
  const auto* second = runs.second.data_as<const std::byte>();
  if (std::memcmp(runs.first.data(), second, runs.first.size()) == 0) return;
  const auto size = static_cast<std::size_t>(size_bytes(runs.second.dtype));
  const auto count = static_cast<std::int64_t>(runs.first.size() / size);
  const auto flat = [&](const std::byte* data) {
    return TensorView::contiguous(const_cast<std::byte*>(data), {count}, runs.second.dtype);
  };
  const TensorView old_values = flat(runs.first.data());
  const TensorView new_values = flat(second);
  const double u = unit_roundoff(runs.second.dtype);
  // Operands lie within [-1, 1), so that k products come to a few times sqrt(k), and their sums in f32 to as
  // many roundings.
  const double slack = 8 * std::ldexp(1.0, -24) * static_cast<double>(runs.k) +
                       smallest_rounding(runs.second.dtype) + runs.slack;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i) * size;
    if (std::memcmp(runs.first.data() + at, second + at, size) == 0) continue;
    const double before = element_as_f64(old_values, i);
    const double after = element_as_f64(new_values, i);
    const double allowed = runs.same_bits ? -1 : 4 * u * std::max(std::abs(before), std::abs(after)) + slack;
    if (std::abs(before - after) <= allowed) continue;
    wrong.add(fmt::format("{}, element {} in memory: {} in one run, {} in another", what, i, before, after));
  }
}

void compare_with_serial(const Problem& problem, int i, const TwoRuns& runs, Wrong& wrong) {
  TwoRuns both = runs;
  both.k = problem.k();
  if (problem.op == Op::kMatmulReduceScatter) {
    // Each rank's part is rounded to the result's type on its way, and in another order to the number beside:
    // off by 2 u of itself. A product has a standard deviation of 1/3; six times that of all parts together.
    both.slack = 6 * 2 * unit_roundoff(problem.dtype) * std::sqrt(static_cast<double>(both.k)) / 3;
    if (problem.reduce == coll::ReduceOp::kAvg) both.slack /= problem.ranks;
  }
  compare_runs(both, fmt::format("result {} of serial and of this", i), wrong);
}

}  // namespace tandem::harness
