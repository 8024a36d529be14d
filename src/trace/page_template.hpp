#pragma once

#include <string_view>

namespace tandem::trace {

/// page/timeline.html, which has a place for the JSON.
[[nodiscard]] std::string_view page_template();

}  // namespace tandem::trace
