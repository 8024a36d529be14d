#pragma once

#include <optional>
#include <string>

#include "collective.hpp"
#include "command.hpp"

namespace tandem::cli {

/// `run` of a collective: the flags that it takes.
struct CollectiveRun {
  CollectiveOp op = CollectiveOp::kLowContentionAllGather;
  std::string a;
  std::string out;
  std::string dtype;  ///< empty: that of the file
  std::string reduce;
  int dim = 0;
};

/// A gather's file holds the whole tensor, which each rank has a shard of. A scatter's holds a summand a
/// rank, one behind the other along the first dimension, and as many ranks run.
int run_collective(const CollectiveRun& run, JobFlags job, const Invocation& invocation);
[[nodiscard]] nlohmann::json run_collective_rank(const CollectiveRun& run, const JobFlags& job,
                                                 const RankContext& context, const Config& config);

}  // namespace tandem::cli
