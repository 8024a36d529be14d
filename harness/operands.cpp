#include "harness/operands.hpp"

#include <tandem/base/convert.hpp>

#include "harness/failure.hpp"

namespace tandem::harness {
namespace {

// One round of the splitmix64 generator, used as a hash of the element's index.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

float generated_value(std::uint64_t seed, std::int64_t idx) {
  const std::uint64_t bits = mix(seed ^ mix(static_cast<std::uint64_t>(idx)));
  return static_cast<float>(static_cast<int>(bits >> 40U) - (1 << 23)) / static_cast<float>(1 << 23);
}

void WholeTensors::read(const Operand& operand, const Window& window, const TensorView& to) const {
  const auto idx = static_cast<std::size_t>(operand.idx);
  const TensorView& whole = operand.kind == OperandKind::kA   ? a
                            : operand.kind == OperandKind::kB ? b[idx]
                                                              : bias[idx];
  const TensorView part = whole.narrow(window.dim, window.shard.offset, window.shard.size);
  // A column-major file is read in its order, not a whole column apart from one element to the next.
  const bool is_column_major = part.dim() == 2 && part.stride(0) == 1;
  take(is_column_major ? convert(part.movedim(0, 1), to.movedim(0, 1)) : convert(part, to));
}

Dims sizes_of(const Problem& problem, const Operand& operand) {
  if (operand.kind == OperandKind::kA) return problem.a;
  const std::int64_t n = problem.n[static_cast<std::size_t>(operand.idx)];
  return operand.kind == OperandKind::kB ? Dims{problem.k(), n} : Dims{n};
}

std::uint64_t GeneratedTensors::seed_of(const Operand& operand) const {
  return problem_.seed * 1024 + static_cast<std::uint64_t>(operand.kind) * 64 +
         static_cast<std::uint64_t>(operand.idx);
}

void GeneratedTensors::read(const Operand& operand, const Window& window, const TensorView& to) const {
  generate({seed_of(operand), sizes_of(problem_, operand), window.dim, window.shard.offset}, to);
}

std::vector<double> GeneratedTensors::line(const Operand& operand, const Dims& sizes,
                                           const Window& window) const {
  Dims part = sizes;
  part[window.dim] = window.shard.size;
  const Tensor rounded = Tensor::host(part, problem_.dtype);
  generate({seed_of(operand), sizes, window.dim, window.shard.offset}, rounded.view());
  std::vector<double> values(static_cast<std::size_t>(numel(part)));
  take(convert(rounded.view(), TensorView::contiguous(values.data(), part, DType::kF64)));
  return values;
}

std::vector<double> GeneratedTensors::row_of_a(std::int64_t row) const {
  // The leading dims as one: an element's value depends on its row-major index only.
  const std::int64_t rows = numel(problem_.a) / problem_.k();
  return line({OperandKind::kA}, {rows, problem_.k()}, {0, {row, 1}});
}

std::vector<double> GeneratedTensors::column_of_b(int i, std::int64_t column) const {
  const Operand operand{OperandKind::kB, i};
  return line(operand, sizes_of(problem_, operand), {1, {column, 1}});
}

double GeneratedTensors::bias_at(int i, std::int64_t column) const {
  const Operand operand{OperandKind::kBias, i};
  return problem_.bias ? line(operand, sizes_of(problem_, operand), {0, {column, 1}})[0] : 0;
}

void generate(const GeneratedPart& part, const TensorView& to) {
  if (to.numel() == 0) return;
  const Dims strides = contiguous_strides(part.sizes);
  const int last = to.dim() - 1;
  // One innermost row at a time, so that no second copy of a large tensor is needed.
  const Tensor row = Tensor::host({to.size(last)}, DType::kF32);
  auto* values = row.view().data_as<float>();
  Dims idx;
  for (int d = 0; d < last; ++d) idx.push_back(0);
  for (;;) {
    std::int64_t first = part.offset * strides[part.dim];
    TensorView target = to;
    for (int d = 0; d < last; ++d) {
      first += idx[d] * strides[d];
      target = target.select(0, idx[d]);
    }
    for (std::int64_t i = 0; i < to.size(last); ++i)
      values[i] = generated_value(part.seed, first + i) * part.scale;
    take(convert(row.view(), target));
    int d = last - 1;
    for (; d >= 0 && ++idx[d] == to.size(d); --d) idx[d] = 0;
    if (d < 0) return;
  }
}

}  // namespace tandem::harness
