#include "explain.hpp"

#include <fmt/format.h>

#include <sstream>
#include <string>
#include <tandem/base/time_text.hpp>

namespace tandem::cli {

nlohmann::json to_json(const OpReport& report) {
  nlohmann::json candidates = nlohmann::json::array();
  for (const Candidate& candidate : report.candidates) {
    nlohmann::json one{{"algorithm", to_string(candidate.algorithm)},
                       {"why_not", candidate.why_not},
                       {"predicted_us", nullptr},
                       {"measured_us", nullptr}};
    if (candidate.predicted_us) one["predicted_us"] = *candidate.predicted_us;
    if (candidate.measured_us) one["measured_us"] = *candidate.measured_us;
    candidates.push_back(std::move(one));
  }
  return {{"algorithm", to_string(report.algorithm)},
          {"reason", report.reason},
          {"key", report.key},
          {"as_graph", report.as_graph},
          {"nan_check", report.checks_nan},
          {"candidates", candidates},
          {"program", program_text(report)}};
}

void print_program(const nlohmann::json& report) {
  std::istringstream program(report.at("program").get<std::string>());
  for (std::string line; std::getline(program, line);) fmt::print("#   {}\n", line);
}

void print_candidates(const nlohmann::json& report, const nlohmann::json& here) {
  const auto text = [](const nlohmann::json& us) {
    return us.is_null() ? std::string("-") : time_text(us.get<double>());
  };
  const auto here_text = [&](const std::string& name) {
    return here.empty() ? "" : fmt::format(" {:>10}", text(here.value(name, nlohmann::json())));
  };
  fmt::print("#   {:<10} {:>10} {:>10}{}\n", "candidate", "predicted", "tuned",
             here.empty() ? "" : fmt::format(" {:>10}", "here"));
  for (const auto& candidate : report.at("candidates")) {
    const auto name = candidate.at("algorithm").get<std::string>();
    const auto why_not = candidate.at("why_not").get<std::string>();
    if (!why_not.empty()) {
      fmt::print("#   {:<10} cannot run here: {}\n", name, why_not);
      continue;
    }
    const bool runs = name == report.at("algorithm").get<std::string>();
    fmt::print("#   {:<10} {:>10} {:>10}{}{}\n", name, text(candidate.at("predicted_us")),
               text(candidate.at("measured_us")), here_text(name),
               runs ? fmt::format("  runs{}: {}", report.at("as_graph").get<bool>() ? " as a graph" : "",
                                  report.at("reason").get<std::string>())
                    : "");
  }
}

}  // namespace tandem::cli
