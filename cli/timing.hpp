#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem::cli {

/// Of the time lists that all ranks published at `where` (a JSON pointer), the largest of each iteration.
[[nodiscard]] std::vector<double> slowest_rank(const std::vector<nlohmann::json>& results,
                                               const std::string& where);

/// "2026-01-31 12:00:00 UTC".
[[nodiscard]] std::string date_utc();

/// "1/8" or "0.125"; throws exit 2 unless in (0, 1].
[[nodiscard]] double parse_scale(const std::string& text);

}  // namespace tandem::cli
