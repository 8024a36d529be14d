#pragma once

#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/device.hpp>

namespace tandem {

/// Whether `device` can work on the view `name` at all: one stride per size, no negative size, memory it can
/// reach.
[[nodiscard]] Result<void> check_view(std::string_view op, std::string_view name, const TensorView& view,
                                      const Device& device);

}  // namespace tandem
