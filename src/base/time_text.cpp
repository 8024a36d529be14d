#include <cmath>
#include <tandem/base/time_text.hpp>

#include "base/format.hpp"

namespace tandem {

std::string time_text(double us) {
  struct Unit {
    const char* name;
    double us;
  };
  constexpr Unit kUnits[] = {{"ns", 1e-3}, {"us", 1}, {"ms", 1e3}, {"s", 1e6}};
  constexpr double kRoundedUp = 999.5;  // has four digits when it is rounded, so the next unit is its own
  const double size = std::abs(us);
  if (size == 0) return "0 us";
  const Unit* unit = std::begin(kUnits);
  while (unit + 1 != std::end(kUnits) && size >= kRoundedUp * unit->us) ++unit;
  const double value = size / unit->us;
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{}{:.{}f} {}", us < 0 ? "-" : "", value, decimals, unit->name);
}

std::string time_text(std::chrono::nanoseconds time) {
  return time_text(std::chrono::duration<double, std::micro>(time).count());
}

}  // namespace tandem
