#pragma once

#include <string_view>
#include <tandem/base/config.hpp>

namespace tandem {

/// Writes one line to stderr when `level` is at least `threshold` (the configured Config::log_level); line
/// breaks in `text` become spaces. The library logs only what no return value can carry, such as a fault
/// inside a destructor.
void log(LogLevel threshold, LogLevel level, std::string_view text);

}  // namespace tandem
