#pragma once

#include <nlohmann/json.hpp>
#include <tandem/fused/report.hpp>

namespace tandem::cli {

/// In a rank: a report for the launcher: algorithm, reason, key, candidates and program.
[[nodiscard]] nlohmann::json to_json(const OpReport& report);

/// In the launcher: the program that rank 0 ran, a line for each tensor and each step.
void print_program(const nlohmann::json& report);

/// In the launcher: a table of the candidates of such a report, with their times as predicted and as tuned,
/// and why that one runs. `here`, if it has any: what they took in this run, in us by the algorithm's name.
void print_candidates(const nlohmann::json& report, const nlohmann::json& here = nullptr);

}  // namespace tandem::cli
