#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench_row.hpp"
#include "collective.hpp"
#include "command.hpp"
#include "harness/problem.hpp"
#include "row_file.hpp"

namespace tandem::cli {

/// `bench` of a collective beside a product: what is measured.
struct BesideBench {
  CollectiveOp op = CollectiveOp::kLowContentionAllGather;
  std::vector<harness::ProductSizes> products;  ///< of each rank
  std::vector<DType> dtypes;
  std::vector<std::int64_t> mibs;  ///< a rank's part: its shard, or its chunk of the sum
  BenchCounts counts;
  std::string json;
};

/// Throws exit 2 for what is larger than memory.
void check_memory_need(const BesideBench& bench, int ranks);
/// Times the collective alone, the product alone, and each while the other runs, and the same with the
/// ordinary collective, in the same rounds. A row for each size; of a gather one for inputs in symmetric
/// memory, too. Prints rows and appends them to the file. Call it behind the heading.
int bench_beside(const BesideBench& bench, const RowFile& file, const Invocation& invocation,
                 const JobPlace& place);
/// In a rank: measures the row that the launcher has told.
[[nodiscard]] nlohmann::json measure_beside(const BesideBench& bench, const RankContext& context,
                                            const Config& config);

}  // namespace tandem::cli
