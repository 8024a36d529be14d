#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <tandem/base/config.hpp>
#include <vector>

#include "machine.hpp"

namespace tandem::cli {

/// What a timeline of tandem, or a profiler beside it, can see on this machine.
struct TracingFact {
  std::string name;         ///< "cuda:0", "nsys"
  bool works = false;       ///< with no more to be done
  std::string text = {};    ///< what there is
  std::string remedy = {};  ///< what to do to have it; empty where there is nothing to do
  nlohmann::json more = nlohmann::json::object();  ///< for programs, beside the above
};

/// Profilers and what they may read. Starts shells, so it comes before the CUDA runtime.
[[nodiscard]] std::vector<TracingFact> profiler_facts(const Machine& machine);
/// Opens the devices, which starts the CUDA runtime.
[[nodiscard]] std::vector<TracingFact> device_facts(const Config& config, const Machine& machine);

/// "cuda:0: CUDA events ...; ± 4.1 us", "nsys: not found; to change that: ...".
[[nodiscard]] std::string to_text(const TracingFact& fact);
[[nodiscard]] nlohmann::json to_json(const TracingFact& fact);

}  // namespace tandem::cli
