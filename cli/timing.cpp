#include "timing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>

#include "failure.hpp"

namespace tandem::cli {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::vector<double> slowest_rank(const std::vector<nlohmann::json>& results, const std::string& where) {
  std::vector<double> slowest;
  for (const auto& result : results) {
    const auto times = result.at(nlohmann::json::json_pointer(where)).get<std::vector<double>>();
    slowest.resize(std::max(slowest.size(), times.size()));
    for (std::size_t i = 0; i < times.size(); ++i) slowest[i] = std::max(slowest[i], times[i]);
  }
  return slowest;
}

double now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
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
