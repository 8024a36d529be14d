#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tandem/base/shape.hpp>
#include <tandem/cost/table.hpp>

namespace tandem {

/// How a fused op moves data: `native` is one kernel that consumes its input as it arrives, `pipelined` two
/// streams of chunks, `serial` a collective and then a product. kAuto picks; a report says what was picked
/// and why.
enum class Algorithm : std::uint8_t { kAuto, kNative, kPipelined, kSerial };
[[nodiscard]] std::string_view to_string(Algorithm algorithm);
[[nodiscard]] std::optional<Algorithm> parse_algorithm(std::string_view name);

/// An algorithm that might have run. Units: us.
struct Candidate {
  Algorithm algorithm = Algorithm::kSerial;
  std::string why_not = {};  ///< if it cannot run here; then there are no times
  /// By the cost model. Null on CPUs until an op of the group has asked `auto`, which has their speeds
  /// measured (see Config::core_rates), and for a group of one.
  std::optional<double> predicted_us = {};
  std::optional<double> measured_us = {};  ///< by `tandem tune`
};

/// What ran and why: a view into the plan of the problem, which the report keeps. Texts, candidates and key
/// are there as long as the report or a copy of it, also behind the group's end; whoever keeps them longer
/// copies them. Later calls leave them as they are.
struct OpReport {
  Algorithm algorithm = Algorithm::kAuto;
  std::string_view reason;  ///< "asked for", "measured 812 us; serial 1.01 ms", "predicted ..."
  std::string_view key;     ///< the problem: "all_gather_matmul 4096x3584x8192 bf16 dim 0 w4"
  std::span<const Candidate> candidates = {};
  /// Under which measured times of this problem are looked up; null where that is not done, as plan_n
  /// (plan_k) was not told.
  const cost::Key* tune_key = nullptr;
  /// Launched as a recording of an earlier call with the same tensors; see Config::record_after.
  bool as_graph = false;
  /// Keeps what the members above point to.
  std::shared_ptr<const void> plan = {};
};

/// The program that ran, or that would run: a line for each tensor that it refers to, then a line for each
/// step, with the stream that it is enqueued on. Empty for a report of no op.
/// Source:  docs/design/programs.md
[[nodiscard]] std::string program_text(const OpReport& report);

/// Sizes and strides that an output must have.
struct Layout {
  Dims sizes;
  Dims strides;
};

}  // namespace tandem
