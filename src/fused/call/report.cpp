#include <tandem/fused/report.hpp>

namespace tandem {

std::string_view to_string(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kAuto:
      return "auto";
    case Algorithm::kNative:
      return "native";
    case Algorithm::kPipelined:
      return "pipelined";
    case Algorithm::kSerial:
      return "serial";
  }
  return "?";
}

std::optional<Algorithm> parse_algorithm(std::string_view name) {
  for (const Algorithm algorithm :
       {Algorithm::kAuto, Algorithm::kNative, Algorithm::kPipelined, Algorithm::kSerial}) {
    if (to_string(algorithm) == name) return algorithm;
  }
  return std::nullopt;
}

}  // namespace tandem
