#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <tandem/base/log.hpp>

namespace tandem {

void log(LogLevel threshold, LogLevel level, std::string_view text) {
  if (level < threshold || level == LogLevel::kOff) return;
  try {
    std::string line(text);
    std::replace_if(
        line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
    constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                     spdlog::level::warn, spdlog::level::err};
    spdlog::logger logger("tandem", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger.set_level(spdlog::level::debug);
    logger.log(kLevels[static_cast<int>(level)], line);
  } catch (const std::exception&) {
    // Destructors log: a line that cannot be written is given up.
  }
}

}  // namespace tandem
