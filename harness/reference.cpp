#include "harness/reference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tandem/base/convert.hpp>
#include <tandem/gemm/scaled_mm.hpp>

#include "harness/failure.hpp"

namespace tandem::harness {
namespace {

constexpr double kF32Roundoff = 0x1p-24;

std::vector<double> as_f64(const TensorView& view) {
  std::vector<double> values(static_cast<std::size_t>(view.numel()));
  take(convert(view, TensorView::contiguous(values.data(), view.sizes, DType::kF64)));
  return values;
}

// A global tensor, rounded to its type as every rank sees it, then widened; b and its scales column-major.
std::vector<double> widened(const Problem& problem, const OperandSource& source, const Operand& operand) {
  const Dims sizes = sizes_of(problem, operand);
  const Tensor whole = Tensor::host(sizes, dtype_of(problem, operand));
  source.read(operand, {0, {0, sizes[0]}}, whole.view());
  const bool is_of_b = operand.kind == OperandKind::kB || operand.kind == OperandKind::kBScale;
  return as_f64(is_of_b && sizes.size() == 2 ? whole.view().movedim(0, 1) : whole.view());
}

// Rows of a or columns of b, times their scales.
void scale(const Problem& problem, const OperandSource& source, const Operand& operand,
           std::vector<double>& values) {
  if (!problem.is_scaled() || values.empty()) return;
  const std::vector<double> scales = widened(problem, source, scale_of(operand));
  const auto k = static_cast<std::size_t>(problem.k());
  const std::size_t lines = values.size() / k;
  const std::size_t each = scales.size() == 1 ? 1 : scales.size() / lines;
  for (std::size_t i = 0; i < lines; ++i)
    apply_scales(std::span(values).subspan(i * k, k),
                 std::span(scales).subspan(scales.size() == 1 ? 0 : i * each, each));
}

// Of scales, at most, in a sum over so much of k: two a block and two in the end.
double num_scale_roundings(const Problem& problem, std::int64_t k) {
  return problem.is_scaled() ? static_cast<double>(3 * gemm::num_scale_blocks(k) + 4) : 0;
}

struct Place {
  std::int64_t row = 0;
  std::int64_t column = 0;
};

// Where an element of a part lies in the whole, which has these strides; leading dims as one.
Place place_of(const Part& part, const Dims& strides, std::int64_t element) {
  std::int64_t flat = 0;
  for (int d = part.elements.dim() - 1; d >= 0; --d) {
    const std::int64_t offset = d == part.window.dim ? part.window.shard.offset : 0;
    flat += (element % part.elements.size(d) + offset) * strides[d];
    element /= part.elements.size(d);
  }
  return {flat / part.whole.back(), flat % part.whole.back()};
}

void compare_element(const std::string& name, const Place& place, double got, const Expected& expected,
                     Wrong& wrong) {
  if (is_right(got, expected)) return;
  wrong.add(fmt::format("{}, row {}, column {}: got {}, need {} +- {:.3g}", name, place.row, place.column,
                        got, expected.value, expected.tolerance));
}

std::string name_of_result(int i) {
  return fmt::format("result {}", i);
}

std::span<const double> line_of(const std::vector<double>& values, std::int64_t line, std::int64_t size) {
  return std::span(values).subspan(static_cast<std::size_t>(line * size), static_cast<std::size_t>(size));
}

// Of a list that is empty, where every value is `none`, or has one for all or one for each.
double value_in(const std::vector<double>& values, std::int64_t idx, double none) {
  if (values.empty()) return none;
  return values.size() == 1 ? values[0] : values[static_cast<std::size_t>(idx)];
}

struct PartialSum {
  double value = 0;
  double magnitude = 0;  // sum of the absolute values of its products
};

PartialSum sum_of(std::span<const double> row, std::span<const double> column, const Shard& shard) {
  PartialSum sum;
  for (std::int64_t i = shard.offset; i < shard.offset + shard.size; ++i) {
    const double product = row[static_cast<std::size_t>(i)] * column[static_cast<std::size_t>(i)];
    sum.value += product;
    sum.magnitude += std::abs(product);
  }
  return sum;
}

// A sum whose parts are added one after the other in f32. It allocates nothing: each element has one.
class F32Sum {
 public:
  void add(const Expected& part) {
    sum_.value += part.value;
    sum_.tolerance += part.tolerance;
    magnitude_ += std::abs(part.value) + part.tolerance;
    ++count_;
  }
  [[nodiscard]] Expected get() const {
    return {sum_.value, sum_.tolerance + count_ * kF32Roundoff * magnitude_};
  }

 private:
  Expected sum_;
  double magnitude_ = 0;
  double count_ = 0;
};

double sum_roundoff(const Problem& problem) {
  return problem.by_tensor_cores && problem.is_scaled() ? kTensorCoreRoundoff : 0;
}

double largest_of(DType dtype) {
  if (dtype == DType::kF8E4M3) return 448;
  return dtype == DType::kF8E5M2 ? 57344 : std::numeric_limits<double>::infinity();
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

Expected rounded(const Expected& sum, DType dtype) {
  const double largest = largest_of(dtype);
  Expected result{std::clamp(sum.value, -largest, largest), sum.tolerance};
  // What is rounded may be off itself: f8 rounds by up to 1/8 of what it is given.
  if (size_bytes(dtype) == 1) result.tolerance *= 1.13;
  if (dtype != DType::kF32) result.tolerance += rounding_error(dtype, result.value);
  return result;
}

Expected sum_in_f32(std::span<const Expected> parts) {
  F32Sum sum;
  for (const Expected& part : parts) sum.add(part);
  return sum.get();
}

Expected sum_in_steps(std::span<const Expected> parts, DType dtype) {
  Expected sum = sum_in_f32(parts);
  double so_far = 0;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    so_far += parts[i].value;
    sum.tolerance += rounding_error(dtype, so_far) + rounding_error(dtype, parts[i + 1].value);
  }
  return sum;
}

Expected sum_over_ranks(std::span<const Expected> partials, DType dtype, coll::ReduceOp reduce, double bias) {
  F32Sum sent;
  for (const Expected& partial : partials) sent.add(rounded(partial, dtype));
  Expected sum = sent.get();
  if (reduce == coll::ReduceOp::kAvg) {
    const auto count = static_cast<double>(partials.size());
    sum = {sum.value / count, sum.tolerance / count};
  }
  const Expected terms[] = {sum, {bias, 0}};
  return sum_in_f32(terms);
}

Expected expect(const Problem& problem, std::span<const double> row, std::span<const double> column,
                double bias) {
  const auto k = static_cast<std::int64_t>(row.size());
  Expected expected;
  double magnitude = 0;
  double roundings = 0;
  double partials = 0;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const PartialSum partial = sum_of(row, column, shard_of(k, problem.ranks, rank));
    magnitude += partial.magnitude;
    expected.value += partial.value;
    // A scaled product's bias is rounded with its partial.
    const double beside = problem.is_scaled() ? std::abs(bias) : 0;
    roundings += rounding_error(problem.out_dtype(), std::abs(partial.value) + beside);
    partials += std::abs(partial.value) + beside;
  }
  // By `pipelined` on GPUs the sum of several peers' partials is rounded before the own product is added.
  if (problem.ranks > 2 && problem.algorithm != Algorithm::kSerial)
    roundings += rounding_error(problem.out_dtype(), partials);
  expected.tolerance = (static_cast<double>(k + problem.ranks + 4) + num_scale_roundings(problem, k)) *
                           kF32Roundoff * (magnitude + std::abs(bias)) +
                       sum_roundoff(problem) * magnitude;
  if (reduces(problem.op)) expected.tolerance += roundings;
  if (problem.reduce == coll::ReduceOp::kAvg) {
    expected.value /= problem.ranks;
    expected.tolerance /= problem.ranks;
  }
  expected.value += bias;
  return rounded(expected, problem.out_dtype());
}

bool is_right(double got, const Expected& expected) {
  return std::abs(got - expected.value) <= expected.tolerance;
}

void compare_elements(const Part& part, const std::string& name,
                      const std::function<Expected(std::int64_t, std::int64_t)>& need, Wrong& wrong) {
  const Dims strides = contiguous_strides(part.whole);
  const std::int64_t count = part.elements.numel();
  for (std::int64_t element = 0; element < count; ++element) {
    const Place place = place_of(part, strides, element);
    compare_element(name, place, element_as_f64(part.elements, element), need(place.row, place.column),
                    wrong);
  }
}

void compare_equal(const TensorView& got, const TensorView& need, const std::string& name, Wrong& wrong) {
  const auto need_at = [&](std::int64_t row, std::int64_t column) -> Expected {
    return {element_as_f64(need, row * need.sizes.back() + column), 0};
  };
  compare_elements({need.sizes, {}, got}, name, need_at, wrong);
}

ProductReference::ProductReference(const ProductTensors& tensors)
    : n_(tensors.b.size(1)),
      k_(tensors.b.size(0)),
      scale_block_(tensors.scale_block),
      sum_roundoff_(tensors.by_tensor_cores && is_f8(tensors.a.dtype) ? kTensorCoreRoundoff : 0),
      a_(as_f64(tensors.a)),
      b_(as_f64(tensors.b.movedim(0, 1))) {
  if (tensors.a_scale && tensors.a_scale->numel() != 1) a_scale_parts_ = tensors.a_scale->sizes.back();
  if (tensors.b_scale && tensors.b_scale->dim() == 2) b_scale_sizes_ = tensors.b_scale->sizes;
  num_parts_ = static_cast<int>(std::max(a_scale_parts_, b_scale_sizes_[0]));
  num_roundings_ += 3 * num_parts_;
  if (tensors.bias) bias_ = as_f64(*tensors.bias);
  if (tensors.addend) addend_ = as_f64(*tensors.addend);
  const auto read_scale = [&](const std::optional<TensorView>& scale, std::vector<double>& values) {
    if (!scale) return;
    values = as_f64(*scale);
    num_roundings_ += 2;
  };
  read_scale(tensors.a_scale, a_scale_);
  read_scale(tensors.b_scale, b_scale_);
  read_scale(tensors.result_scale, result_scale_);
}

Expected ProductReference::sum_at(std::int64_t row, std::int64_t column) const {
  PartialSum sum;
  for (int part = 0; part < num_parts_; ++part) {
    const double scale = a_scale_at(row, part) * b_scale_at(part, column);
    const PartialSum partial = sum_of(line_of(a_, row, k_), line_of(b_, column, k_), part_of_k(part));
    sum.value += partial.value * scale;
    sum.magnitude += partial.magnitude * std::abs(scale);
  }
  const double bias = value_in(bias_, column, 0);
  const double result_scale = value_in(result_scale_, 0, 1);
  const double addend = value_in(addend_, row * n_ + column, 0);
  const double magnitude = (sum.magnitude + std::abs(bias)) * std::abs(result_scale) + std::abs(addend);
  return {(sum.value + bias) * result_scale + addend,
          static_cast<double>(k_ + num_roundings_) * kF32Roundoff * magnitude +
              sum_roundoff_ * sum.magnitude * std::abs(result_scale)};
}

Shard ProductReference::part_of_k(int part) const {
  if (scale_block_ == 0) return shard_of(k_, num_parts_, part);
  const std::int64_t offset = std::min(part * scale_block_, k_);
  return {offset, num_parts_ == 1 ? k_ : std::min(scale_block_, k_ - offset)};
}

double ProductReference::a_scale_at(std::int64_t row, int part) const {
  return value_in(a_scale_, row * a_scale_parts_ + (a_scale_parts_ > 1 ? part : 0), 1);
}

double ProductReference::b_scale_at(int part, std::int64_t column) const {
  const std::int64_t line = b_scale_sizes_[0] > 1 ? part : 0;
  const std::int64_t columns = b_scale_sizes_[1];
  const std::int64_t idx = columns == n_ ? column : columns == 1 ? 0 : column / scale_block_;
  return value_in(b_scale_, line * columns + idx, 1);
}

void ProductReference::compare(const TensorView& result, const std::string& name, Wrong& wrong) const {
  const auto need = [&](std::int64_t row, std::int64_t column) {
    return rounded(sum_at(row, column), result.dtype);
  };
  compare_elements({result.sizes, {}, result}, name, need, wrong);
}

Reference::Reference(const Problem& problem, const OperandSource& source)
    : problem_(problem), a_(widened(problem, source, {OperandKind::kA})) {
  if (problem.gathered) gathered_ = a_;
  scale(problem, source, {OperandKind::kA}, a_);
  for (int i = 0; i < static_cast<int>(problem.n.size()); ++i) {
    b_.push_back(widened(problem, source, {OperandKind::kB, i}));
    scale(problem, source, {OperandKind::kB, i}, b_.back());
    if (problem.bias) bias_.push_back(widened(problem, source, {OperandKind::kBias, i}));
  }
}

std::span<const double> Reference::row_of_a(std::int64_t row) const {
  return line_of(a_, row, problem_.k());
}

std::span<const double> Reference::column_of_b(int i, std::int64_t column) const {
  return line_of(b_[static_cast<std::size_t>(i)], column, problem_.k());
}

double Reference::bias_at(int i, std::int64_t column) const {
  return problem_.bias ? bias_[static_cast<std::size_t>(i)][static_cast<std::size_t>(column)] : 0;
}

Expected Reference::partial_sum(int rank, int i, std::int64_t row, std::int64_t column) const {
  const Shard shard = shard_of(problem_.k(), problem_.ranks, rank);
  const PartialSum sum = sum_of(row_of_a(row), column_of_b(i, column), shard);
  const double roundings = static_cast<double>(shard.size + 2) + num_scale_roundings(problem_, shard.size);
  return {sum.value, (roundings * kF32Roundoff + sum_roundoff(problem_)) * sum.magnitude};
}

void Reference::compare(int i, const Window& window, const TensorView& part, Wrong& wrong) const {
  const auto need = [&](std::int64_t row, std::int64_t column) {
    return expect(problem_, row_of_a(row), column_of_b(i, column), bias_at(i, column));
  };
  compare_elements({problem_.result_sizes(i), window, part}, name_of_result(i), need, wrong);
}

void compare_samples(const Problem& problem, int i, const Window& window, const TensorView& part,
                     std::int64_t num_samples, Wrong& wrong) {
  const GeneratedTensors source(problem);
  const std::int64_t count = std::min(part.numel(), num_samples);
  const Part of_part{problem.result_sizes(i), window, part};
  const Dims strides = contiguous_strides(of_part.whole);
  for (std::int64_t sample = 0; sample < count; ++sample) {
    const std::int64_t element = sample * part.numel() / count + (part.numel() / count) * (sample % 7) / 7;
    const Place place = place_of(of_part, strides, element);
    const Expected expected = expect(problem, source.row_of_a(place.row), source.column_of_b(i, place.column),
                                     source.bias_at(i, place.column));
    compare_element(name_of_result(i), place, element_as_f64(part, element), expected, wrong);
  }
}

void Reference::compare_gathered(const TensorView& gathered, Wrong& wrong) const {
  compare_equal(gathered, TensorView::read_only(gathered_.data(), problem_.a, DType::kF64), "gathered a",
                wrong);
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
  if (reduces(problem.op)) {
    // Each rank's part is rounded to the result's type on its way, and in another order to the number beside:
    // off by 2 u of itself. A product has a standard deviation of 1/3; six times that of all parts together.
    both.slack = 6 * 2 * unit_roundoff(problem.out_dtype()) * std::sqrt(static_cast<double>(both.k)) / 3;
    if (problem.reduce == coll::ReduceOp::kAvg) both.slack /= problem.ranks;
  }
  // Operands have a mean size of 1/2 or less, scales of 1 or less.
  both.slack += 2 * sum_roundoff(problem) * static_cast<double>(both.k) / 4;
  compare_runs(both, fmt::format("result {} of serial and of this", i), wrong);
}

}  // namespace tandem::harness
