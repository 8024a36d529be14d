#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <tandem/device/stream.hpp>

#include "graph/interpreter/host_tensor.hpp"

namespace tandem::graph::interpreter {

/// One product of a sum, with what _scaled_mm does to it: (a * b * a_scale * b_scale + bias) * result_scale.
struct Product {
  HostTensor a;                            ///< [..., k]
  HostTensor b;                            ///< [k, n]
  std::optional<HostTensor> a_scale = {};  ///< f32: one element, or a's sizes with 1 last
  std::optional<HostTensor> b_scale = {};  ///< f32: one element, or [1, n]
  std::optional<HostTensor> bias = {};     ///< [n]
  std::optional<HostTensor> result_scale = {};
};

/// The sum of products, in f32 and in the order of the list, rounded once to `dtype`. A product's own sum
/// is the library's, with its bits.
/// Shapes:  a's sizes with n last.
/// Errors:  kInvalidArgument for operands that do not fit together.
[[nodiscard]] Result<HostTensor> sum_of_products(std::span<const Product> products, DType dtype,
                                                 Stream& stream);

}  // namespace tandem::graph::interpreter
