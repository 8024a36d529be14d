#pragma once

#include <optional>
#include <string>

namespace tandem {

/// The value of an environment variable that is no setting of tandem's, such as one of a launcher; nothing if
/// it is unset or empty. It is defined where the settings are read: no other file reads the environment.
[[nodiscard]] std::optional<std::string> environment_variable(const std::string& name);

}  // namespace tandem
