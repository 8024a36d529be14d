#include "sweep.hpp"

#include <fmt/format.h>

namespace tandem::cli {
namespace {

Dims sizes_for(SizeChoice choice, int num_dims) {
  if (choice == SizeChoice::kTiny) return num_dims == 2 ? Dims{3, 2} : Dims{2, 3, 2};
  return num_dims == 2 ? Dims{29, 37} : Dims{7, 13, 37};
}

}  // namespace

std::vector<Extras> extras_of(harness::Op op) {
  if (op == harness::Op::kAllGatherMatmul) {
    return {{false, false, coll::ReduceOp::kSum}, {true, true, coll::ReduceOp::kSum}};
  }
  return {{false, false, coll::ReduceOp::kSum},
          {true, false, coll::ReduceOp::kSum},
          {false, false, coll::ReduceOp::kAvg},
          {true, false, coll::ReduceOp::kAvg}};
}

std::vector<harness::Problem> problems_of(harness::Op op, const std::vector<DType>& dtypes, int ranks) {
  std::vector<harness::Problem> problems;
  for (const DType dtype : dtypes) {
    for (const DimChoice& choice : kDimChoices) {
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
  return problems;
}

std::int64_t num_cases(harness::Op op, const SweepLists& lists) {
  return static_cast<std::int64_t>(lists.dtypes.size() * std::size(kDimChoices) * std::size(kSizeChoices) *
                                   extras_of(op).size() * lists.algorithms.size() * lists.ranks.size());
}

std::string product_in_words(harness::Op op, const SweepLists& lists) {
  return fmt::format("{} dtypes x {} dims x {} sizes x {} extras x {} algorithms x {} numbers of ranks = {}",
                     lists.dtypes.size(), std::size(kDimChoices), std::size(kSizeChoices),
                     extras_of(op).size(), lists.algorithms.size(), lists.ranks.size(), num_cases(op, lists));
}

}  // namespace tandem::cli
