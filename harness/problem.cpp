#include "harness/problem.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <tandem/gemm/scaled_mm.hpp>

#include "harness/failure.hpp"

namespace tandem::harness {
namespace {

constexpr int kMostRanks = 64;
constexpr std::int64_t kLargestSize = std::int64_t{1} << 31;
constexpr std::int64_t kMostElements = std::int64_t{1} << 48;

constexpr std::string_view kOpsToCome[] = {"async_input_mm"};
constexpr std::string_view kCollectives[] = {"low_contention_all_gather", "low_contention_reduce_scatter"};

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

template <class Number>
Number parse_number(const std::string& text, const std::string& what) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    bad_input(fmt::format("--problem: {}='{}': need a whole number", what, text));
  }
  return value;
}

std::vector<std::int64_t> parse_sizes(const std::string& text, char separator, const std::string& what) {
  std::vector<std::int64_t> sizes;
  for (const std::string& part : split(text, separator))
    sizes.push_back(parse_number<std::int64_t>(part, what));
  return sizes;
}

void set_field(Problem& problem, const std::string& key, const std::string& value) {
  if (key == "a") {
    const auto sizes = parse_sizes(value, 'x', key);
    if (sizes.size() > kMaxDims)
      bad_input(fmt::format("--problem: a={}: more than {} dims", value, kMaxDims));
    problem.a = Dims(sizes);
  } else if (key == "n") {
    problem.n = parse_sizes(value, '+', key);
  } else if (key == "dtype") {
    problem.dtype = parse_product_dtype(value);
  } else if (key == "scales") {
    problem.scales = parse_scales(value);
  } else if (key == "out") {
    problem.out = parse_out_dtype(value);
  } else if (key == "dim") {
    problem.dim = parse_number<int>(value, key);
  } else if (key == "ranks") {
    problem.ranks = parse_number<int>(value, key);
  } else if (key == "algorithm") {
    problem.algorithm = parse_algorithm_flag(value);
  } else if (key == "reduce") {
    problem.reduce = parse_reduce(value);
  } else if (key == "bias") {
    problem.bias = parse_number<int>(value, key) != 0;
  } else if (key == "gathered") {
    problem.gathered = parse_number<int>(value, key) != 0;
  } else if (key == "b") {
    problem.b_is_column_major = parse_b_order(value);
  } else if (key == "fast") {
    problem.fast_accum = parse_number<int>(value, key) != 0;
  } else if (key == "seed") {
    problem.seed = parse_number<std::uint64_t>(value, key);
  } else {
    bad_input(
        fmt::format("--problem: unknown key '{}': need a, n, dtype, scales, out, dim, ranks, algorithm, "
                    "reduce, bias, gathered, b, fast or seed",
                    key));
  }
}

void check_types(const Problem& problem) {
  const auto dtype = tandem::to_string(problem.dtype);
  if (is_f8(problem.dtype) && !problem.is_scaled())
    bad_input(fmt::format("dtype {} needs scales: pass --scales tensor, row or block", dtype));
  if (!is_f8(problem.dtype) && problem.is_scaled()) {
    bad_input(fmt::format("--scales {} with dtype {}: need dtype f8e4m3 or f8e5m2", to_string(problem.scales),
                          dtype));
  }
  if (problem.fast_accum && !problem.is_scaled()) {
    bad_input(fmt::format(
        "--fast-accum with dtype {}: need f8e4m3 or f8e5m2, whose sums tensor cores shorten", dtype));
  }
  if (problem.out && !problem.is_scaled()) {
    bad_input(fmt::format("--out-dtype {}: products of {} have its type; only those of f8 have another",
                          tandem::to_string(*problem.out), dtype));
  }
  if (problem.scales == Scales::kBlock && reduces(problem.op)) {
    not_supported(fmt::format(
        "--scales block: {} cuts k, and has scales of tensors and of rows only; pass --scales tensor or row",
        to_string(problem.op)));
  }
}

// Sizes are user input: their product may overflow. Every size is from 0 to kLargestSize here.
void check_num_elements(const char* what, const Dims& sizes) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return;
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) {
    if (count > kMostElements / size) {
      bad_input(fmt::format("{} has sizes {}: more than {} elements; use smaller tensors", what,
                            tandem::to_string(sizes), kMostElements));
    }
    count *= size;
  }
}

std::string_view scaled_name(Op op) {
  switch (op) {
    case Op::kMatmulReduceScatter:
      return "scaled_matmul_reduce_scatter";
    case Op::kMatmulAllReduce:
      return "scaled_matmul_all_reduce";
    case Op::kAllGatherMatmul:
      break;
  }
  return "all_gather_scaled_matmul";
}

}  // namespace

std::string_view to_string(Scales scales) {
  switch (scales) {
    case Scales::kTensor:
      return "tensor";
    case Scales::kRow:
      return "row";
    case Scales::kBlock:
      return "block";
    case Scales::kNone:
      break;
  }
  return "none";
}

std::string_view to_string(Op op) {
  switch (op) {
    case Op::kMatmulReduceScatter:
      return "matmul_reduce_scatter";
    case Op::kMatmulAllReduce:
      return "matmul_all_reduce";
    case Op::kAllGatherMatmul:
      break;
  }
  return "all_gather_matmul";
}

std::string names_of_ops() {
  std::string names;
  for (const Op op : kOps)
    names += fmt::format("{}{}",
                         op == kOps[0]              ? ""
                         : op == *std::rbegin(kOps) ? " or "
                                                    : ", ",
                         to_string(op));
  return names;
}

Op parse_op(const std::string& name) {
  for (const Op op : kOps) {
    if (name == to_string(op)) return op;
  }
  for (const Op op : kOps) {
    if (name == scaled_name(op)) {
      bad_input(fmt::format("op '{}': name it {}, with --dtype f8e4m3 or f8e5m2 and --scales", name,
                            to_string(op)));
    }
  }
  const bool to_come = std::find(std::begin(kOpsToCome), std::end(kOpsToCome), name) != std::end(kOpsToCome);
  if (to_come) {
    not_supported(fmt::format("op '{}' is not built yet: need {}", name, names_of_ops()));
  }
  if (std::find(std::begin(kCollectives), std::end(kCollectives), name) != std::end(kCollectives)) {
    not_supported(
        fmt::format("op '{}' multiplies nothing: run, check and bench take it by its name; need {} here",
                    name, names_of_ops()));
  }
  if (name == "matmul_4bit") {
    not_supported(fmt::format("op '{}' runs in one process, which only run and bench know: need {} here",
                              name, names_of_ops()));
  }
  bad_input(fmt::format("unknown op '{}': need {}", name, names_of_ops()));
}

Dims Problem::result_sizes(int i) const {
  Dims sizes = a;
  sizes[sizes.size() - 1] = n[static_cast<std::size_t>(i)];
  return sizes;
}

Window window_of_a(const Problem& problem, int rank) {
  const int dim = problem.op == Op::kAllGatherMatmul ? problem.dim : problem.a.size() - 1;
  return {dim, shard_of(problem.a[dim], problem.ranks, rank)};
}

Window window_of_b(const Problem& problem, int i, int rank) {
  if (problem.op == Op::kAllGatherMatmul) {
    return {1, shard_of(problem.n[static_cast<std::size_t>(i)], problem.ranks, rank)};
  }
  return {0, shard_of(problem.k(), problem.ranks, rank)};
}

Window window_of_bias(const Problem& problem, int i, int rank) {
  const std::int64_t n = problem.n[static_cast<std::size_t>(i)];
  // Of a sum over ranks it is always whole: each rank adds the columns that it sums.
  if (reduces(problem.op)) return {0, {0, n}};
  return {0, shard_of(n, problem.ranks, rank)};
}

Dims a_scale_sizes(const Problem& problem) {
  if (problem.scales == Scales::kTensor) return {1};
  Dims sizes = problem.a;
  sizes[sizes.size() - 1] =
      problem.scales == Scales::kBlock ? gemm::num_scale_blocks(problem.k()) : std::int64_t{1};
  return sizes;
}

Dims b_scale_sizes(const Problem& problem, int i) {
  if (problem.scales == Scales::kTensor) return {1};
  const std::int64_t rows = problem.scales == Scales::kBlock ? gemm::num_scale_blocks(problem.k()) : 1;
  return {rows, problem.n[static_cast<std::size_t>(i)]};
}

Window window_of_a_scale(const Problem& problem, int rank) {
  const Dims sizes = a_scale_sizes(problem);
  const bool is_one_for_all_slices = problem.dim_is_last() && problem.scales == Scales::kRow;
  if (problem.scales == Scales::kTensor || problem.op != Op::kAllGatherMatmul || is_one_for_all_slices)
    return {0, {0, sizes[0]}};
  return {problem.dim, shard_of(sizes[problem.dim], problem.ranks, rank)};
}

Window window_of_b_scale(const Problem& problem, int i, int rank) {
  const Dims sizes = b_scale_sizes(problem, i);
  if (problem.scales == Scales::kTensor || problem.op != Op::kAllGatherMatmul) return {0, {0, sizes[0]}};
  return {1, shard_of(sizes[1], problem.ranks, rank)};
}

Window window_of_result(const Problem& problem, int i, int rank) {
  const Dims sizes = problem.result_sizes(i);
  if (problem.op == Op::kMatmulAllReduce) return {0, {0, sizes[0]}};
  const int dim = problem.op == Op::kAllGatherMatmul ? sizes.size() - 1 : problem.dim;
  return {dim, shard_of(sizes[dim], problem.ranks, rank)};
}

ProductSizes product_of_a_rank(const Problem& problem) {
  ProductSizes sizes{.m = 1, .n = 0, .k = problem.k()};
  for (int d = 0; d < problem.a.size() - 1; ++d) sizes.m *= problem.a[d];
  if (reduces(problem.op)) {
    sizes.n = problem.n[0];
    sizes.k = window_of_b(problem, 0, 0).shard.size;
    return sizes;
  }
  for (int i = 0; i < static_cast<int>(problem.n.size()); ++i)
    sizes.n += window_of_b(problem, i, 0).shard.size;
  return sizes;
}

namespace {

/// Blocks of scales are whole in every slice of k.
void check_slices(const Problem& problem) {
  const std::int64_t stride = shard_stride(problem.k(), problem.ranks);
  const bool is_cut = problem.dim_is_last() && stride < problem.k();
  if (problem.scales != Scales::kBlock || !is_cut || stride % gemm::kScaleBlock == 0) return;
  bad_input(
      fmt::format("--scales block and --gather-dim {}, the last: slices of {} columns over {} ranks begin at "
                  "multiples of {}, "
                  "need multiples of {}; gather another dimension",
                  problem.dim, problem.k(), problem.ranks, stride, gemm::kScaleBlock));
}

}  // namespace

void check_problem(const Problem& problem) {
  const bool gathers = !reduces(problem.op);
  const char* flag = gathers ? "--gather-dim" : "--scatter-dim";
  check_ranks(problem.ranks, "--ranks");
  check_types(problem);
  if (problem.a.size() < 2) {
    bad_input(fmt::format("A has {} dimension(s), sizes {}: need at least 2, [..., k]", problem.a.size(),
                          tandem::to_string(problem.a)));
  }
  if (problem.op == Op::kMatmulAllReduce && problem.dim != 0)
    bad_input(fmt::format("dim {}: matmul_all_reduce scatters none: leave it out", problem.dim));
  if (problem.dim < 0 || problem.dim >= problem.a.size()) {
    bad_input(fmt::format("{} {} is outside [0, {}): A has sizes {}; count dimensions from 0", flag,
                          problem.dim, problem.a.size(), tandem::to_string(problem.a)));
  }
  if (problem.n.empty() || (!gathers && problem.n.size() != 1)) {
    bad_input(fmt::format("{} takes {} B, got {}", to_string(problem.op),
                          gathers ? "at least one" : "exactly one", problem.n.size()));
  }
  for (const std::int64_t size : problem.a) {
    if (size < 0 || size > kLargestSize)
      bad_input(fmt::format("A's size {} is outside [0, {}]", size, kLargestSize));
  }
  for (const std::int64_t size : problem.n) {
    if (size < 0 || size > kLargestSize)
      bad_input(fmt::format("B has {} columns: need 0 to {}", size, kLargestSize));
  }
  check_slices(problem);
  check_num_elements("A", problem.a);
  for (int i = 0; i < static_cast<int>(problem.n.size()); ++i) {
    check_num_elements("B", {problem.k(), problem.n[static_cast<std::size_t>(i)]});
    check_num_elements("the result", problem.result_sizes(i));
  }
  if (!gathers && problem.gathered)
    bad_input(fmt::format("{} gathers nothing: leave out gathered=1", to_string(problem.op)));
  if (gathers && problem.reduce != coll::ReduceOp::kSum) {
    bad_input("all_gather_matmul reduces nothing: leave out --reduce avg");
  }
}

std::string to_line(const Problem& problem) {
  std::string line = fmt::format("{},a={},n={},dtype={},dim={},ranks={},algorithm={}", to_string(problem.op),
                                 fmt::join(problem.a.begin(), problem.a.end(), "x"),
                                 fmt::join(problem.n, "+"), tandem::to_string(problem.dtype), problem.dim,
                                 problem.ranks, tandem::to_string(problem.algorithm));
  if (problem.is_scaled()) line += fmt::format(",scales={}", to_string(problem.scales));
  if (problem.out) line += fmt::format(",out={}", tandem::to_string(*problem.out));
  if (reduces(problem.op)) line += fmt::format(",reduce={}", coll::to_string(problem.reduce));
  if (problem.bias) line += ",bias=1";
  if (problem.gathered) line += ",gathered=1";
  if (problem.b_is_column_major) line += ",b=column";
  if (problem.fast_accum) line += ",fast=1";
  return line + fmt::format(",seed={}", problem.seed);
}

Problem parse_problem(const std::string& line) {
  const auto parts = split(line, ',');
  Problem problem;
  problem.op = parse_op(parts[0]);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::size_t equals = parts[i].find('=');
    if (equals == std::string::npos) {
      bad_input(
          fmt::format("--problem: '{}' is not of the form key=value, as in "
                      "all_gather_matmul,a=3x7x5,n=9,dtype=bf16,dim=1,ranks=3",
                      parts[i]));
    }
    set_field(problem, parts[i].substr(0, equals), parts[i].substr(equals + 1));
  }
  check_problem(problem);
  return problem;
}

Algorithm parse_algorithm_flag(const std::string& text) {
  const auto algorithm = parse_algorithm(text);
  if (!algorithm) bad_input(fmt::format("algorithm '{}': need auto, native, pipelined or serial", text));
  return *algorithm;
}

DType parse_product_dtype(const std::string& text) {
  const auto dtype = parse_dtype(text);
  if (dtype && (is_f8(*dtype) || *dtype == DType::kF32 || *dtype == DType::kF16 || *dtype == DType::kBF16))
    return *dtype;
  bad_input(fmt::format("dtype '{}': need f32, f16, bf16, f8e4m3 or f8e5m2", text));
}

DType parse_out_dtype(const std::string& text) {
  const auto dtype = parse_dtype(text);
  if (dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16) return *dtype;
  bad_input(fmt::format("out type '{}': need f32, f16 or bf16", text));
}

Scales parse_scales(const std::string& text) {
  for (const Scales scales : {Scales::kTensor, Scales::kRow, Scales::kBlock}) {
    if (text == to_string(scales)) return scales;
  }
  bad_input(fmt::format("scales '{}': need tensor, row or block", text));
}

coll::ReduceOp parse_reduce(const std::string& text) {
  if (text == "sum") return coll::ReduceOp::kSum;
  if (text == "avg") return coll::ReduceOp::kAvg;
  bad_input(fmt::format("reduce '{}': need sum or avg", text));
}

bool parse_b_order(const std::string& text) {
  if (text != "row" && text != "column") bad_input(fmt::format("b order '{}': need row or column", text));
  return text == "column";
}

void check_ranks(int ranks, const std::string& what) {
  if (ranks < 1 || ranks > kMostRanks) {
    bad_input(fmt::format("{} {}: need a number from 1 to {}", what, ranks, kMostRanks));
  }
}

}  // namespace tandem::harness
