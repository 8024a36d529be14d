#pragma once

#include <string>
#include <string_view>
#include <tandem/trace/events.hpp>
#include <tandem/trace/summary.hpp>

namespace tandem::trace {

/// What a page says of where its trace is from.
struct Origin {
  std::string command = {};  ///< "tandem trace bench ..."
  std::string date = {};     ///< ISO 8601, UTC
  std::string machine = {};  ///< name of the host and its processor
};

/// The trace as JSON that chrome://tracing and Perfetto read, with the summary beside the events.
/// Source:  docs/design/timeline.md
[[nodiscard]] std::string to_json(const Trace& trace, const Summary& summary, const Origin& origin);

/// A page that shows this JSON in a browser, without a network.
[[nodiscard]] std::string to_html(std::string_view json);

}  // namespace tandem::trace
