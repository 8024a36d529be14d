#pragma once

#include <string_view>
#include <tandem/base/config.hpp>

namespace tandem {

/// Writes one line to stderr if `level` is at least `threshold`, which is Config::log_level. Line breaks in
/// `text` become spaces. The library logs only what no return value can carry, such as a fault in a
/// destructor.
void log(LogLevel threshold, LogLevel level, std::string_view text);

}  // namespace tandem
