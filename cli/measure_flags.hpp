#pragma once

#include <CLI/App.hpp>
#include <chrono>
#include <cstdint>
#include <string>
#include <tandem/base/config.hpp>
#include <utility>
#include <vector>

#include "bench_row.hpp"
#include "command.hpp"
#include "harness/problem.hpp"

namespace tandem::cli {

/// Throws exit 2 for --m, --n or --k out of range.
void check_sizes(const harness::ProductSizes& sizes);

/// What `bench` and `tune` have in common: which problems are measured, how often, and where.
struct MeasureFlags {
  std::vector<std::int64_t> m;
  std::vector<std::int64_t> n;
  std::vector<std::int64_t> k;
  std::vector<std::string> dtypes{"bf16"};
  std::vector<std::string> scales;    ///< of f8 operands
  bool fast_accum = false;            ///< the same
  std::vector<std::string> b_orders;  ///< empty: column with a preset, as models store weights; else row
  std::string preset;
  std::string scale;
  BenchCounts counts;
  int link_delay_us = -1;
  JobFlags job;

  void define(CLI::App& app);
  /// Throws exit 2 for values that make no sense.
  void check() const;
  /// What every report of measured times begins with.
  void print_heading(const Invocation& invocation, const JobPlace& place) const;
  /// Every combination of sizes and types, whatever the algorithm. Throws exit 2.
  [[nodiscard]] std::vector<harness::Problem> problems(harness::Op op, int ranks, bool on_gpus) const;
  /// As asked for, or what the machine can take.
  [[nodiscard]] std::string scale_text(bool on_gpus) const {
    return !scale.empty() ? scale : on_gpus ? "1" : "1/8";
  }
  /// The simulated link: the flag, or what the environment says.
  [[nodiscard]] std::chrono::microseconds link_of(const Config& config) const {
    return link_delay_us >= 0 ? std::chrono::microseconds(link_delay_us) : config.link_delay;
  }

 private:
  [[nodiscard]] std::vector<harness::ProductSizes> sizes(bool gathers, bool on_gpus) const;
  [[nodiscard]] std::vector<harness::ProductSizes> listed_sizes() const;
  /// Each type, with each kind of scales that it takes.
  [[nodiscard]] std::vector<std::pair<DType, harness::Scales>> types() const;
};

}  // namespace tandem::cli
