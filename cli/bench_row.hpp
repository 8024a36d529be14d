#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/problem.hpp"
#include "session.hpp"

namespace tandem::cli {

/// One line of a benchmark: an op on a problem, or the product alone ("mm").
struct BenchRow {
  harness::Problem problem;
  bool product_only = false;

  [[nodiscard]] std::string op_name() const {
    return product_only ? "mm" : std::string(to_string(problem.op));
  }
};

struct BenchCounts {
  int warmup = 2;
  bool by_samples = false;  ///< of results in the first round, warm-up too; else all, in all rounds
  int iterations = 10;
  bool graph = false;         ///< time replays of a recording
  bool alternatives = false;  ///< time the other algorithms too
  int load_ms = 0;            ///< of work for a GPU before each timed call
};

/// In a rank: times all variants of a row, interleaved and in a new order every round, and checks every
/// result. The JSON object holds lists of microseconds, one value an iteration.
[[nodiscard]] nlohmann::json measure(const BenchRow& row, const BenchCounts& counts, const Session& session);

/// In a rank: what the product alone takes on the slowest rank, the median of all rounds; the same on every
/// rank.
[[nodiscard]] double product_us(const BenchRow& row, const BenchCounts& counts, const Session& session);

/// In a rank: as measure(), for each algorithm of an op that can run, by their names, with the report of what
/// `problem` asks for, and "table", this rank's medians as a cost::Table.
[[nodiscard]] nlohmann::json measure_algorithms(const harness::Problem& problem, const BenchCounts& counts,
                                                const Session& session);

/// "row" and the like; null where there are no scales.
[[nodiscard]] nlohmann::json scales_json(harness::Scales scales);

/// In the launcher: the row of figures from what the ranks measured. Keys as in docs/cli.md; null where a
/// figure does not apply.
[[nodiscard]] nlohmann::json summarize(const BenchRow& row, const BenchCounts& counts,
                                       const std::vector<nlohmann::json>& results);

}  // namespace tandem::cli
