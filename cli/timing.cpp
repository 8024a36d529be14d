#include "timing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "failure.hpp"

namespace tandem::cli {

std::vector<double> slowest_rank(const std::vector<nlohmann::json>& results, const std::string& where) {
  std::vector<double> slowest;
  for (const auto& result : results) {
    const auto times = result.at(nlohmann::json::json_pointer(where)).get<std::vector<double>>();
    slowest.resize(std::max(slowest.size(), times.size()));
    for (std::size_t i = 0; i < times.size(); ++i) slowest[i] = std::max(slowest[i], times[i]);
  }
  return slowest;
}

std::string date_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[64];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

double parse_scale(const std::string& text) {
  const char* end = text.c_str();
  char* after = nullptr;
  double value = std::strtod(end, &after);
  if (*after == '/') {
    const char* divisor = after + 1;
    value /= std::strtod(divisor, &after);
    if (after == divisor) value = 0;
  }
  if (text.empty() || *after != '\0' || !(value > 0 && value <= 1)) {
    bad_input(fmt::format("--scale '{}': need a number above 0 and up to 1, such as 1/8", text));
  }
  return value;
}

}  // namespace tandem::cli
