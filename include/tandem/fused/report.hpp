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

/// How a fused op is executed. `native` is one product that starts before its input is complete. `pipelined`
/// copies one chunk while it multiplies another, on two streams. `serial` is a collective and a product, one
/// after the other. kAuto asks the library to choose; a report says what was chosen, and why.
enum class Algorithm : std::uint8_t { kAuto, kNative, kPipelined, kSerial };
/// "auto", "native", "pipelined", "serial".
[[nodiscard]] std::string_view to_string(Algorithm algorithm);
/// The inverse of to_string(); nothing for an unknown name.
[[nodiscard]] std::optional<Algorithm> parse_algorithm(std::string_view name);

/// An algorithm that `auto` could have chosen.
/// Units:   us.
struct Candidate {
  Algorithm algorithm = Algorithm::kSerial;
  std::string why_not = {};  ///< why it cannot run here; there are no times then
  /// The time that the cost model predicts. It is null for a group of one rank. On CPUs it is also null until
  /// an op of the group has asked `auto`, which measures the cores' speeds (Config::core_rates).
  std::optional<double> predicted_us = {};
  std::optional<double> measured_us = {};  ///< measured by `tandem tune`
};

/// What ran and why. Texts, candidates and key live as long as the report or a copy of it, also after the
/// group's end. Later calls do not change them.
struct OpReport {
  Algorithm algorithm = Algorithm::kAuto;
  std::string_view reason;  ///< "asked for", "measured 812 us; serial 1.01 ms", "predicted ..."
  std::string_view key;     ///< the problem: "all_gather_matmul 4096x3584x8192 bf16 dim 0 w4"
  std::span<const Candidate> candidates = {};
  /// The key under which measured times of this problem are looked up. It is null if plan_n, or plan_k, was
  /// not given: then no times are looked up.
  const cost::Key* tune_key = nullptr;
  /// Whether the call launched a recording of an earlier call with the same tensors; see
  /// Config::record_after.
  bool as_graph = false;
  /// Whether the call looked for NaN in its inputs; see Group::nan_check().
  bool checks_nan = false;
  /// Owns what the members above point to.
  std::shared_ptr<const void> plan = {};
};

/// The program that ran, or that would run. It has a line for each tensor, then a line for each step with the
/// stream that the step is enqueued on. It is empty for a report of no op.
/// Source:  docs/design/programs.md
[[nodiscard]] std::string program_text(const OpReport& report);

/// Sizes and strides of a tensor.
struct Layout {
  Dims sizes;
  Dims strides;
};

}  // namespace tandem
