#include "explain.hpp"

#include <fmt/format.h>

#include <string>

namespace tandem::cli {

nlohmann::json to_json(const OpReport& report) {
  nlohmann::json candidates = nlohmann::json::array();
  for (const Candidate& candidate : report.candidates) {
    nlohmann::json one{{"algorithm", to_string(candidate.algorithm)},
                       {"why_not", candidate.why_not},
                       {"predicted_us", candidate.predicted_us},
                       {"measured_us", nullptr}};
    if (candidate.measured_us) one["measured_us"] = *candidate.measured_us;
    candidates.push_back(std::move(one));
  }
  return {{"algorithm", to_string(report.algorithm)},
          {"reason", report.reason},
          {"key", report.key},
          {"as_graph", report.as_graph},
          {"candidates", candidates}};
}

void print_candidates(const nlohmann::json& report) {
  const auto us = [](const nlohmann::json& time) {
    return time.is_null() ? std::string("-") : fmt::format("{:.1f} us", time.get<double>());
  };
  fmt::print("#   {:<10} {:>14} {:>14}\n", "candidate", "predicted", "measured");
  for (const auto& candidate : report.at("candidates")) {
    const auto name = candidate.at("algorithm").get<std::string>();
    const auto why_not = candidate.at("why_not").get<std::string>();
    if (!why_not.empty()) {
      fmt::print("#   {:<10} cannot run here: {}\n", name, why_not);
      continue;
    }
    const bool runs = name == report.at("algorithm").get<std::string>();
    fmt::print("#   {:<10} {:>14} {:>14}{}\n", name, us(candidate.at("predicted_us")),
               us(candidate.at("measured_us")),
               runs ? fmt::format("  runs{}: {}", report.at("as_graph").get<bool>() ? " as a graph" : "",
                                  report.at("reason").get<std::string>())
                    : "");
  }
}

}  // namespace tandem::cli
