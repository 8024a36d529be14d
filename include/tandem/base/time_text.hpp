#pragma once

#include <chrono>
#include <string>

namespace tandem {

/// A time as people read it, with three digits: "840 ns", "71.3 us", "253 ms", "1.50 s".
/// Units:   microseconds.
[[nodiscard]] std::string time_text(double us);
[[nodiscard]] std::string time_text(std::chrono::nanoseconds time);

}  // namespace tandem
