#include "sweep.hpp"

#include <fmt/format.h>

#include <tandem/gemm/scaled_mm.hpp>

namespace tandem::cli {
namespace {

Dims sizes_for(SizeChoice choice, int num_dims) {
  if (choice == SizeChoice::kTiny) return num_dims == 2 ? Dims{3, 2} : Dims{2, 3, 2};
  return num_dims == 2 ? Dims{29, 37} : Dims{7, 13, 37};
}

}  // namespace

std::span<const DimChoice> dims_of(harness::Op op) {
  static constexpr DimChoice kAll[] = {{2, 0}, {2, 1}, {3, 0}, {3, 1}, {3, 2}};
  static constexpr DimChoice kFirst[] = {{2, 0}, {3, 0}};
  return op == harness::Op::kMatmulAllReduce ? std::span<const DimChoice>(kFirst) : kAll;
}

std::vector<Extras> extras_of(harness::Op op) {
  if (op == harness::Op::kAllGatherMatmul) {
    return {{false, false, coll::ReduceOp::kSum}, {true, true, coll::ReduceOp::kSum}};
  }
  return {{false, false, coll::ReduceOp::kSum},
          {true, false, coll::ReduceOp::kSum},
          {false, false, coll::ReduceOp::kAvg},
          {true, false, coll::ReduceOp::kAvg}};
}

namespace {

std::vector<harness::Scales> scales_of(harness::Op op, const SweepLists& lists) {
  std::vector<harness::Scales> scales = lists.scales;
  if (reduces(op)) std::erase(scales, harness::Scales::kBlock);
  return scales;
}

std::size_t num_scaled(harness::Op op, const SweepLists& lists) {
  return lists.f8_types.size() * scales_of(op, lists).size() * dims_of(op).size();
}

/// With more than one block of k. Slices of k begin at blocks.
harness::Problem scaled_problem(harness::Op op, const DimChoice& choice, harness::Scales scales, int ranks) {
  harness::Problem problem;
  problem.op = op;
  problem.a = choice.num_dims == 2 ? Dims{29, 150} : Dims{7, 13, 150};
  if (choice.dim == choice.num_dims - 1 && scales == harness::Scales::kBlock)
    problem.a[choice.dim] = gemm::kScaleBlock * ranks;
  problem.n = {23};
  problem.scales = scales;
  problem.dim = choice.dim;
  problem.ranks = ranks;
  problem.bias = choice.dim == 0;
  const bool gathers = op == harness::Op::kAllGatherMatmul;
  if (gathers && problem.bias) problem.n.push_back(17);
  problem.gathered = gathers && problem.bias;
  if (!gathers && problem.bias) problem.reduce = coll::ReduceOp::kAvg;
  return problem;
}

}  // namespace

std::vector<harness::Problem> problems_of(harness::Op op, const SweepLists& lists, int ranks) {
  std::vector<harness::Problem> problems;
  for (const DType dtype : lists.dtypes) {
    for (const DimChoice& choice : dims_of(op)) {
      for (const SizeChoice size : kSizeChoices) {
        for (const Extras& extras : extras_of(op)) {
          harness::Problem problem;
          problem.op = op;
          problem.a = sizes_for(size, choice.num_dims);
          problem.n = {size == SizeChoice::kTiny ? 2 : 23};
          if (extras.several) problem.n.push_back(size == SizeChoice::kTiny ? 1 : 17);
          problem.dtype = dtype;
          problem.dim = choice.dim;
          problem.ranks = ranks;
          problem.reduce = extras.reduce;
          problem.bias = extras.bias;
          problem.gathered = extras.several;
          problem.seed = problems.size() + 1;
          problems.push_back(problem);
        }
      }
    }
  }
  for (const DType dtype : lists.f8_types) {
    for (const harness::Scales scales : scales_of(op, lists)) {
      for (const DimChoice& choice : dims_of(op)) {
        harness::Problem& problem = problems.emplace_back(scaled_problem(op, choice, scales, ranks));
        problem.dtype = dtype;
        problem.seed = problems.size();
      }
    }
  }
  return problems;
}

std::int64_t num_cases(harness::Op op, const SweepLists& lists) {
  const std::size_t plain =
      lists.dtypes.size() * dims_of(op).size() * std::size(kSizeChoices) * extras_of(op).size();
  return static_cast<std::int64_t>((plain + num_scaled(op, lists)) * lists.algorithms.size() *
                                   lists.ranks.size());
}

std::string product_in_words(harness::Op op, const SweepLists& lists) {
  std::string words;
  if (!lists.dtypes.empty()) {
    words = fmt::format("{} dtypes x {} dims x {} sizes x {} extras", lists.dtypes.size(), dims_of(op).size(),
                        std::size(kSizeChoices), extras_of(op).size());
  }
  if (num_scaled(op, lists) > 0) {
    const std::string scaled = fmt::format("{} f8 dtypes x {} scales x {} dims", lists.f8_types.size(),
                                           scales_of(op, lists).size(), dims_of(op).size());
    words = words.empty() ? scaled : fmt::format("({} + {})", words, scaled);
  }
  return fmt::format("{} x {} algorithms x {} numbers of ranks = {}", words, lists.algorithms.size(),
                     lists.ranks.size(), num_cases(op, lists));
}

}  // namespace tandem::cli
