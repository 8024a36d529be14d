#pragma once

#include <string>
#include <tandem/fused/forecast.hpp>
#include <utility>
#include <vector>

namespace tandem::cli {

/// What `bench` measured of one op on GPUs that were its own.
struct MeasuredRow {
  std::string file = {};  ///< its name, without folders
  std::string gpu;
  ForecastProblem problem;
  double product_us = 0;
  std::vector<std::pair<Algorithm, double>> us = {};  ///< of each algorithm that was timed
};

/// The rows of a file of `bench ... --json` for which there is a model: of fused ops on GPUs, with nothing
/// simulated, loaded or checked beside. Other rows are left out. Throws exit 2 for a file that cannot be
/// read, and for a line that is no JSON object, or lacks a key, with its number.
[[nodiscard]] std::vector<MeasuredRow> read_bench_rows(const std::string& path);

/// "--shape 4096x7168x8192": m, n and k of one rank's product. Throws exit 2, naming `flag`.
struct Shape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};
[[nodiscard]] Shape parse_shape(const std::string& flag, const std::string& text);

}  // namespace tandem::cli
