#include "harness/operands.hpp"

#include <algorithm>
#include <future>
#include <system_error>
#include <tandem/base/convert.hpp>
#include <tandem/gemm/scaled_mm.hpp>
#include <thread>
#include <utility>
#include <vector>

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
  switch (operand.kind) {
    case OperandKind::kA:
      return window_of_a(problem, rank);
    case OperandKind::kB:
      return window_of_b(problem, operand.idx, rank);
    case OperandKind::kBias:
      return window_of_bias(problem, operand.idx, rank);
    case OperandKind::kAScale:
      return window_of_a_scale(problem, rank);
    case OperandKind::kBScale:
      break;
  }
  return window_of_b_scale(problem, operand.idx, rank);
}

const TensorView& whole_of(const WholeTensors& tensors, const Operand& operand) {
  const auto idx = static_cast<std::size_t>(operand.idx);
  switch (operand.kind) {
    case OperandKind::kA:
      return tensors.a;
    case OperandKind::kB:
      return tensors.b[idx];
    case OperandKind::kBias:
      return tensors.bias[idx];
    case OperandKind::kAScale:
      return *tensors.a_scale;
    case OperandKind::kBScale:
      break;
  }
  return tensors.b_scale[idx];
}

bool is_scale(const Operand& operand) {
  return operand.kind == OperandKind::kAScale || operand.kind == OperandKind::kBScale;
}

}  // namespace

float generated_value(std::uint64_t seed, std::int64_t idx) {
  const std::uint64_t bits = mix(seed ^ mix(static_cast<std::uint64_t>(idx)));
  return static_cast<float>(static_cast<int>(bits >> 40U) - (1 << 23)) / static_cast<float>(1 << 23);
}

void WholeTensors::read(const Operand& operand, const Window& window, const TensorView& to) const {
  const TensorView part = whole_of(*this, operand).narrow(window.dim, window.shard.offset, window.shard.size);
  // A column-major file is read in its order, not a whole column apart from one element to the next.
  const bool is_column_major = part.dim() == 2 && part.stride(0) == 1;
  take(is_column_major ? convert(part.movedim(0, 1), to.movedim(0, 1)) : convert(part, to));
}

Dims sizes_of(const Problem& problem, const Operand& operand) {
  if (operand.kind == OperandKind::kA) return problem.a;
  if (operand.kind == OperandKind::kAScale) return a_scale_sizes(problem);
  if (operand.kind == OperandKind::kBScale) return b_scale_sizes(problem, operand.idx);
  const std::int64_t n = problem.n[static_cast<std::size_t>(operand.idx)];
  return operand.kind == OperandKind::kB ? Dims{problem.k(), n} : Dims{n};
}

DType dtype_of(const Problem& problem, const Operand& operand) {
  if (is_scale(operand)) return DType::kF32;
  return operand.kind == OperandKind::kBias ? problem.out_dtype() : problem.dtype;
}

/// Of the numbers of a scale of b by squares.
Dims square_sizes(const Problem& problem, const Operand& scale) {
  const Dims sizes = b_scale_sizes(problem, scale.idx);
  return {sizes[0], gemm::num_scale_blocks(sizes[1])};
}

Operand scale_of(const Operand& operand) {
  return {operand.kind == OperandKind::kA ? OperandKind::kAScale : OperandKind::kBScale, operand.idx};
}

void apply_scales(std::span<double> line, std::span<const double> scales) {
  for (std::size_t i = 0; i < line.size(); ++i)
    line[i] *= scales[scales.size() == 1 ? 0 : i / static_cast<std::size_t>(gemm::kScaleBlock)];
}

std::vector<double> line_of(const Problem& problem, const OperandSource& source, const Operand& operand,
                            std::int64_t idx) {
  const auto read = [&](const Operand& which, const Window& window) {
    Dims sizes = sizes_of(problem, which);
    sizes[window.dim] = window.shard.size;
    const Tensor part = Tensor::host(sizes, dtype_of(problem, which));
    source.read(which, window, part.view());
    std::vector<double> values(static_cast<std::size_t>(numel(sizes)));
    take(convert(part.view(), TensorView::contiguous(values.data(), sizes, DType::kF64)));
    return values;
  };
  const Window window{operand.kind == OperandKind::kA ? 0 : 1, {idx, 1}};
  std::vector<double> values = read(operand, window);
  if (!problem.is_scaled()) return values;
  apply_scales(values,
               read(scale_of(operand), problem.scales == Scales::kTensor ? Window{0, {0, 1}} : window));
  return values;
}

std::uint64_t GeneratedTensors::seed_of(const Operand& operand) const {
  return problem_.seed * 1024 + static_cast<std::uint64_t>(operand.kind) * 64 +
         static_cast<std::uint64_t>(operand.idx);
}

GeneratedPart GeneratedTensors::part_of(const Operand& operand, const Dims& sizes,
                                        const Window& window) const {
  GeneratedPart part{seed_of(operand), sizes, window.dim, window.shard.offset};
  if (is_scale(operand)) {
    part.scale = 0.25;
    part.shift = 0.75;
  }
  return part;
}

void GeneratedTensors::read(const Operand& operand, const Window& window, const TensorView& to) const {
  const Dims sizes = sizes_of(problem_, operand);
  if (operand.kind == OperandKind::kBScale && problem_.scales == Scales::kBlock)
    return read_squares(operand, window.dim == 1 ? window.shard : Shard{0, sizes[1]}, to);
  generate(part_of(operand, sizes, window), to);
}

/// Of these columns; columns of a square have the same.
void GeneratedTensors::read_squares(const Operand& operand, const Shard& columns,
                                    const TensorView& to) const {
  const Dims sizes = square_sizes(problem_, operand);
  const std::int64_t first = columns.offset / gemm::kScaleBlock;
  const std::int64_t end = std::min(gemm::num_scale_blocks(columns.offset + columns.size), sizes[1]);
  const Tensor squares = Tensor::host({sizes[0], end - first}, DType::kF32);
  generate(part_of(operand, sizes, {1, {first, end - first}}), squares.view());
  for (std::int64_t i = 0; i < columns.size; ++i) {
    const std::int64_t square = (columns.offset + i) / gemm::kScaleBlock - first;
    take(convert(squares.view().narrow(1, square, 1), to.narrow(1, i, 1)));
  }
}

std::vector<double> GeneratedTensors::line(const Operand& operand, const Dims& sizes,
                                           const Window& window) const {
  Dims part = sizes;
  part[window.dim] = window.shard.size;
  const Tensor rounded = Tensor::host(part, dtype_of(problem_, operand));
  generate(part_of(operand, sizes, window), rounded.view());
  std::vector<double> values(static_cast<std::size_t>(numel(part)));
  take(convert(rounded.view(), TensorView::contiguous(values.data(), part, DType::kF64)));
  return values;
}

std::vector<double> GeneratedTensors::row_of_a(std::int64_t row) const {
  // The leading dims as one: an element's value depends on its row-major index only.
  const std::int64_t rows = numel(problem_.a) / problem_.k();
  std::vector<double> values = line({OperandKind::kA}, {rows, problem_.k()}, {0, {row, 1}});
  if (!problem_.is_scaled()) return values;
  const Dims scales = a_scale_sizes(problem_);
  const bool is_one = problem_.scales == Scales::kTensor;
  apply_scales(values, line({OperandKind::kAScale}, is_one ? scales : Dims{rows, scales.back()},
                            {0, {is_one ? 0 : row, 1}}));
  return values;
}

std::vector<double> GeneratedTensors::column_of_b(int i, std::int64_t column) const {
  return line_of(problem_, *this, {OperandKind::kB, i}, column);
}

double GeneratedTensors::bias_at(int i, std::int64_t column) const {
  const Operand operand{OperandKind::kBias, i};
  return problem_.bias ? line(operand, sizes_of(problem_, operand), {0, {column, 1}})[0] : 0;
}

namespace {

/// A scale by vectors whose columns have the same in every square of kScaleBlock, as one by squares.
TensorView by_squares(const GuardedTensor& scale) {
  TensorView view = scale.view();
  const TensorView& host = scale.host();
  if (view.dim() != 2 || view.size(1) < 2 || view.size(0) < 2) return view;
  for (std::int64_t row = 0; row < view.size(0); ++row) {
    for (std::int64_t column = 0; column < view.size(1); ++column) {
      const std::int64_t first = column / gemm::kScaleBlock * gemm::kScaleBlock;
      if (element_as_f64(host, row * view.size(1) + column) !=
          element_as_f64(host, row * view.size(1) + first))
        return view;
    }
  }
  view.sizes[1] = gemm::num_scale_blocks(view.size(1));
  view.strides[1] *= gemm::kScaleBlock;
  return view;
}

}  // namespace

RankOperands::RankOperands(const Problem& problem, const OperandSource& source, int rank,
                           const OperandMemory& memory)
    : problem_(problem), rank_(rank) {
  const auto load = [&](const Operand& operand) {
    const Window window = window_of(problem, operand, rank);
    Dims sizes = sizes_of(problem, operand);
    sizes[window.dim] = window.shard.size;
    Layout layout{sizes, contiguous_strides(sizes)};
    if (operand.kind == OperandKind::kB && problem.b_is_column_major) layout.strides = {1, sizes[0]};
    if (operand.kind == OperandKind::kA || operand.kind == OperandKind::kB) {
      for (int d = 0; d < sizes.size(); ++d) layout.strides[d] *= memory.spacing;
    }
    GuardedTensor part(memory.device, layout, dtype_of(problem, operand), memory.image);
    source.read(operand, window, part.host());
    part.upload();
    return part;
  };
  a_ = load({OperandKind::kA});
  if (problem.is_scaled()) a_scale_ = load({OperandKind::kAScale});
  for (int i = 0; i < static_cast<int>(problem.n.size()); ++i) {
    b_.push_back(load({OperandKind::kB, i}));
    if (problem.is_scaled()) b_scale_.push_back(load({OperandKind::kBScale, i}));
    if (problem.bias) bias_.push_back(load({OperandKind::kBias, i}));
  }
  b_views_ = views_of(b_);
  for (const GuardedTensor& scale : b_scale_) b_scale_views_.push_back(by_squares(scale));
  bias_views_ = views_of(bias_);
  optional_bias_.assign(bias_views_.begin(), bias_views_.end());
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

template <class Args>
Args RankOperands::reduce_args() const {
  Args args;
  args.a = std::span(&a_.view(), 1);
  args.b = b_views_;
  args.reduce_op = problem_.reduce;
  if (problem_.bias) args.bias = bias_views_[0];
  return args;
}

MatmulReduceScatterArgs RankOperands::scatter_args() const {
  auto args = reduce_args<MatmulReduceScatterArgs>();
  args.scatter_dim = problem_.dim;
  return args;
}

MatmulAllReduceArgs RankOperands::all_reduce_args() const {
  return reduce_args<MatmulAllReduceArgs>();
}

AllGatherScaledMatmulArgs RankOperands::scaled_gather_args() const {
  constexpr ScaleMode kModes[] = {ScaleMode::kNone, ScaleMode::kTensorwise, ScaleMode::kRowwiseSharded,
                                  ScaleMode::kBlockwiseSharded};
  AllGatherScaledMatmulArgs args;
  args.a = a_.view();
  args.b = b_views_;
  args.a_scale = a_scale_->view();
  args.scale_mode = kModes[static_cast<std::size_t>(problem_.scales)];
  args.b_scale = b_scale_views_;
  args.gather_dim = problem_.dim;
  args.gather_size = problem_.a[problem_.dim];
  args.fast_accum = problem_.fast_accum;
  if (problem_.bias) args.bias = optional_bias_;
  return args;
}

template <class Args>
Args RankOperands::scaled_reduce_args() const {
  Args args;
  args.a = a_.view();
  args.b = b_views_;
  args.a_scale = a_scale_->view();
  args.b_scale = b_scale_views_[0];
  args.reduce_op = problem_.reduce;
  args.fast_accum = problem_.fast_accum;
  if (problem_.bias && (problem_.reduce == coll::ReduceOp::kAvg || rank_ == 0)) args.bias = bias_views_[0];
  return args;
}

ScaledMatmulReduceScatterArgs RankOperands::scaled_scatter_args() const {
  auto args = scaled_reduce_args<ScaledMatmulReduceScatterArgs>();
  args.scatter_dim = problem_.dim;
  return args;
}

ScaledMatmulAllReduceArgs RankOperands::scaled_all_reduce_args() const {
  return scaled_reduce_args<ScaledMatmulAllReduceArgs>();
}

gemm::MmArgs RankOperands::mm_args(const OperandProduct& product) const {
  return {.a = product.a,
          .b = b_views_[static_cast<std::size_t>(product.i)],
          .out = product.out,
          .bias = {},
          .heuristic = product.heuristic};
}

gemm::ScaledMmArgs RankOperands::scaled_mm_args(const OperandProduct& product) const {
  const auto idx = static_cast<std::size_t>(product.i);
  return {.a = product.a,
          .b = b_views_[idx],
          .a_scale = product.a_scale,
          .b_scale = b_scale_views_[idx],
          .out = product.out,
          .fast_accum = problem_.fast_accum,
          .heuristic = product.heuristic};
}

Result<void> RankOperands::multiply(const OperandProduct& product, Stream& stream) const {
  return problem_.is_scaled() ? gemm::scaled_matmul(scaled_mm_args(product), stream)
                              : gemm::mm(mm_args(product), stream);
}

Result<void> RankOperands::prepare(const OperandProduct& product, Stream& stream) const {
  return problem_.is_scaled() ? gemm::prepare(scaled_mm_args(product), stream)
                              : gemm::prepare(mm_args(product), stream);
}

void RankOperands::download() const {
  a_.download();
  if (a_scale_) a_scale_->download();
  for (const auto& tensors : {std::span(b_), std::span(b_scale_), std::span(bias_)}) {
    for (const GuardedTensor& tensor : tensors) tensor.download();
  }
}

bool RankOperands::guards_are_whole() const {
  const auto whole = [](const GuardedTensor& tensor) { return tensor.guards_are_whole(); };
  return whole(a_) && (!a_scale_ || whole(*a_scale_)) && std::all_of(b_.begin(), b_.end(), whole) &&
         std::all_of(b_scale_.begin(), b_scale_.end(), whole) &&
         std::all_of(bias_.begin(), bias_.end(), whole);
}

std::vector<TensorView> views_of(std::span<const GuardedTensor> tensors) {
  std::vector<TensorView> views;
  for (const GuardedTensor& tensor : tensors) views.push_back(tensor.view());
  return views;
}

namespace {

/// `first`: the element of the whole at the start of `to`. `row`: memory for an innermost row, f32, so that
/// no second copy of a large tensor is needed.
void generate_rows(std::int64_t first, const GeneratedPart& part, const TensorView& to,
                   const TensorView& row) {
  if (to.dim() > 1) {
    const std::int64_t stride = contiguous_strides(part.sizes)[part.sizes.size() - to.dim()];
    for (std::int64_t i = 0; i < to.size(0); ++i)
      generate_rows(first + i * stride, part, to.select(0, i), row);
    return;
  }
  auto* values = row.data_as<float>();
  for (std::int64_t i = 0; i < to.size(0); ++i)
    values[i] = part.shift + generated_value(part.seed, first + i) * part.scale;
  take(convert(row, to));
}

void generate_from(std::int64_t first, const GeneratedPart& part, const TensorView& to) {
  const Tensor row = Tensor::host({to.size(to.dim() - 1)}, DType::kF32);
  generate_rows(first, part, to, row.view());
}

}  // namespace

void generate(const GeneratedPart& part, const TensorView& to) {
  if (to.numel() == 0) return;
  const Dims strides = contiguous_strides(part.sizes);
  const std::int64_t first = part.offset * strides[part.dim];
  // Large tensors take longer than what is done with them.
  constexpr std::int64_t kElementsOfThread = 1 << 20;
  constexpr std::int64_t kMostThreads = 8;
  const std::int64_t cores = std::max(1U, std::thread::hardware_concurrency());
  const std::int64_t wanted = std::min({to.numel() / kElementsOfThread, kMostThreads, cores, to.size(0)});
  if (to.dim() < 2 || wanted < 2) return generate_from(first, part, to);
  std::vector<std::future<void>> parts;
  for (std::int64_t i = 0; i < wanted; ++i) {
    const std::int64_t begin = to.size(0) * i / wanted;
    const std::int64_t end = to.size(0) * (i + 1) / wanted;
    const auto generate_piece = [&, begin, end] {
      generate_from(first + begin * strides[0], part, to.narrow(0, begin, end - begin));
    };
    try {
      parts.push_back(std::async(std::launch::async, generate_piece));
    } catch (const std::system_error&) {
      generate_piece();  // where no thread can be made this one does the work
    }
  }
  for (auto& one : parts) one.get();
}

}  // namespace tandem::harness
