#pragma once

#include <string_view>
#include <tandem/base/error.hpp>

namespace tandem {

/// The Error of a call that the system refused with `code` (errno): what could not be done, why, and the
/// limit to raise or the right that is missing. kOutOfMemory if memory is missing, else kDriver.
[[nodiscard]] Error system_refusal(std::string_view what, int code);

}  // namespace tandem
