#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/base/tensor_list.hpp>
#include <tandem/device/device.hpp>
#include <tandem/gemm/scaled_mm.hpp>

#include "fused/call/checks.hpp"
#include "gemm/product.hpp"

namespace tandem::fused {

// Checks that both ops of scaled products make.

/// What may be left out, one a product; the list may be left out as a whole.
[[nodiscard]] inline const TensorView* at(const OptionalTensorList& list, int idx) {
  if (list.empty() || !list[static_cast<std::size_t>(idx)]) return nullptr;
  return &*list[static_cast<std::size_t>(idx)];
}

/// f8e4m3 or f8e5m2.
[[nodiscard]] Result<void> check_f8(std::string_view who, const Named& named, const Device& device);
/// What a scaled product can be rounded to.
[[nodiscard]] Result<void> check_out_type(std::string_view who, const Named& named, const Device& device);
/// f32 of one element, or of these sizes.
[[nodiscard]] Result<void> check_scale(std::string_view who, const Named& named, const Dims& each,
                                       const Device& device);
/// What comes behind the scales of product idx, where it is given: bias [n] and one-element result_scale.
[[nodiscard]] Result<void> check_epilogue(std::string_view who, int idx, const TensorView* bias,
                                          const TensorView* result_scale, std::int64_t n,
                                          const Device& device);

/// As fine as a's, whatever each b has: that is each rank's own affair.
[[nodiscard]] gemm::Scale scale_of_b(gemm::Scale a);

/// Whether the device has scaled products like this one. Errors: kUnsupported with the reason.
[[nodiscard]] Result<void> check_runs(const gemm::ScaledProblem& problem, const Device& device);

}  // namespace tandem::fused
