#pragma once

#include <string_view>
#include <tandem/device/device.hpp>

namespace tandem::testing {

/// Whether a GPU is simulated, which takes a thousand times as long: tests repeat less there.
inline bool is_simulated(const Device& device) {
  return device.description().find("simulated") != std::string_view::npos;
}

}  // namespace tandem::testing
