#pragma once

#include <nlohmann/json.hpp>
#include <tandem/fused/report.hpp>

namespace tandem::cli {

/// In a rank: a report for the launcher: algorithm, reason, key and candidates.
[[nodiscard]] nlohmann::json to_json(const OpReport& report);

/// In the launcher: a table of the candidates of such a report, with their predicted and measured times, and
/// why that one runs.
void print_candidates(const nlohmann::json& report);

}  // namespace tandem::cli
