#include "harness/operands.hpp"

#include <algorithm>
#include <tandem/base/convert.hpp>
#include <utility>

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

Window window_of(const Problem& problem, const Operand& operand, int rank) {
  if (operand.kind == OperandKind::kA) return window_of_a(problem, rank);
  return operand.kind == OperandKind::kB ? window_of_b(problem, operand.idx, rank)
                                         : window_of_bias(problem, operand.idx, rank);
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

RankOperands::RankOperands(const Problem& problem, const OperandSource& source, int rank,
                           const OperandMemory& memory)
    : problem_(problem) {
  const auto load = [&](const Operand& operand) {
    const Window window = window_of(problem, operand, rank);
    Dims sizes = sizes_of(problem, operand);
    sizes[window.dim] = window.shard.size;
    Layout layout{sizes, contiguous_strides(sizes)};
    if (operand.kind == OperandKind::kB && problem.b_is_column_major) layout.strides = {1, sizes[0]};
    if (operand.kind != OperandKind::kBias) {
      for (int d = 0; d < sizes.size(); ++d) layout.strides[d] *= memory.spacing;
    }
    GuardedTensor part(memory.device, layout, problem.dtype, memory.image);
    source.read(operand, window, part.host());
    part.upload();
    return part;
  };
  a_ = load({OperandKind::kA});
  for (int i = 0; i < static_cast<int>(problem.n.size()); ++i) {
    b_.push_back(load({OperandKind::kB, i}));
    if (problem.bias) bias_.push_back(load({OperandKind::kBias, i}));
  }
  b_views_ = views_of(b_);
  bias_views_ = views_of(bias_);
}

AllGatherMatmulArgs RankOperands::gather_args() const {
  AllGatherMatmulArgs args;
  args.a = a_.view();
  args.b = b_views_;
  args.gather_dim = problem_.dim;
  args.gather_size = problem_.a[problem_.dim];
  args.bias = bias_views_;
  return args;
}

MatmulReduceScatterArgs RankOperands::scatter_args() const {
  MatmulReduceScatterArgs args;
  args.a = std::span(&a_.view(), 1);
  args.b = b_views_;
  args.scatter_dim = problem_.dim;
  args.reduce_op = problem_.reduce;
  if (problem_.bias) args.bias = bias_views_[0];
  return args;
}

void RankOperands::download() const {
  a_.download();
  for (const auto& tensors : {std::span(b_), std::span(bias_)}) {
    for (const GuardedTensor& tensor : tensors) tensor.download();
  }
}

bool RankOperands::guards_are_whole() const {
  const auto whole = [](const GuardedTensor& tensor) { return tensor.guards_are_whole(); };
  return whole(a_) && std::all_of(b_.begin(), b_.end(), whole) &&
         std::all_of(bias_.begin(), bias_.end(), whole);
}

std::vector<TensorView> views_of(std::span<const GuardedTensor> tensors) {
  std::vector<TensorView> views;
  for (const GuardedTensor& tensor : tensors) views.push_back(tensor.view());
  return views;
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
      values[i] = part.shift + generated_value(part.seed, first + i) * part.scale;
    take(convert(row.view(), target));
    int d = last - 1;
    for (; d >= 0 && ++idx[d] == to.size(d); --d) idx[d] = 0;
    if (d < 0) return;
  }
}

}  // namespace tandem::harness
