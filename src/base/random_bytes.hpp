#pragma once

#include <span>
#include <string_view>
#include <tandem/base/error.hpp>

namespace tandem {

/// Fills `bytes`, of which there are at most 256, with what nobody can guess. `what` begins the error's text.
[[nodiscard]] Result<void> random_bytes(std::string_view what, std::span<std::byte> bytes);

}  // namespace tandem
