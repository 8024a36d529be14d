#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collective.hpp"
#include "harness/problem.hpp"

namespace tandem::cli {

/// The lists whose product `check` runs.
struct SweepLists {
  std::vector<harness::Op> ops;
  std::vector<CollectiveOp> collectives = {};
  std::vector<DType> dtypes;  ///< but f8
  std::vector<DType> f8_types = {};
  std::vector<harness::Scales> scales = {};  ///< of f8 operands
  std::vector<Algorithm> algorithms;
  std::vector<int> ranks;
};

/// A dimension to gather or scatter, for 2-D and 3-D tensors.
struct DimChoice {
  int num_dims;
  int dim;
};
/// Those of an op; an all-reduce has one for each number of dims.
[[nodiscard]] std::span<const DimChoice> dims_of(harness::Op op);

/// `kRagged`: nothing divides; `kTiny`: fewer rows than ranks, so some shards are empty.
enum class SizeChoice : std::uint8_t { kRagged, kTiny };
inline constexpr SizeChoice kSizeChoices[] = {SizeChoice::kRagged, SizeChoice::kTiny};

/// What else an op can do: gather with one b, or with two, biases and the gathered a; sum or mean over ranks,
/// with or without bias.
struct Extras {
  bool bias;
  bool several;  ///< two b's and the gathered a
  coll::ReduceOp reduce;
};
[[nodiscard]] std::vector<Extras> extras_of(harness::Op op);

/// All problems of an op for `ranks` ranks; their `algorithm` is left open: each is run with every one of the
/// list. Of f8 there is one for each type, kind of scales that the op takes, and dim.
[[nodiscard]] std::vector<harness::Problem> problems_of(harness::Op op, const SweepLists& lists, int ranks);

/// Number of cases of an op, as the product of its lists, and that product in words; f8 has one of its own.
[[nodiscard]] std::int64_t num_cases(harness::Op op, const SweepLists& lists);
[[nodiscard]] std::string product_in_words(harness::Op op, const SweepLists& lists);

}  // namespace tandem::cli
