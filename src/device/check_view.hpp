#pragma once

#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/device.hpp>

namespace tandem {

/// Whether `device` can work on the view `name` at all: one stride per size, no negative size and no more
/// bytes than any memory has, memory it can reach.
[[nodiscard]] Result<void> check_view(std::string_view op, std::string_view name, const TensorView& view,
                                      const Device& device);

/// Whether the view `name` can hold words that one side writes and another waits for: u32, 1-D, contiguous,
/// at a multiple of 4, without which there are no writes in one piece and nothing to sleep on.
[[nodiscard]] Result<void> check_words(std::string_view op, std::string_view name, const TensorView& words);

}  // namespace tandem
