#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/device.hpp>
#include <tandem/fused/report.hpp>

#include "base/overlap.hpp"

namespace tandem::fused {

// Checks that several fused ops make. `who` is the op, `name` the argument: "out[1]".

/// Sizes and strides not negative, at most 2^62 bytes, memory that `device` can reach where there are
/// elements.
[[nodiscard]] Result<void> check_tensor(std::string_view who, const Named& named, const Device& device);

/// check_tensor(), and dtype f32, bf16 or f16 and equal to `dtype`.
[[nodiscard]] Result<void> check_operand(std::string_view who, const Named& named, DType dtype,
                                         const Device& device);

/// Exactly these sizes and strides (dims of size 1 may have any stride).
[[nodiscard]] Result<void> check_has_layout(std::string_view who, const Named& named, const Layout& need);

/// check_operand() and check_has_layout().
[[nodiscard]] Result<void> check_layout(std::string_view who, const Named& named, const Layout& need,
                                        DType dtype, const Device& device);

/// A size that ranks plan with: not negative, and no more than a tensor could have.
[[nodiscard]] Result<void> check_planned(std::string_view who, std::string_view name, std::int64_t size);

/// Whether the sizes are >= 0 and their product times the element size stays below 2^62; zero sizes count as
/// one, so that every product of some of them is safe too.
[[nodiscard]] bool is_representable(const Dims& sizes, DType dtype);

/// Row-major once `dim` is moved to the front; plain row-major if `dim` is the last.
[[nodiscard]] Layout front_major_layout(const Dims& sizes, int dim);

}  // namespace tandem::fused
