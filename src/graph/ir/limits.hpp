#pragma once

#include <cstdint>
#include <tandem/base/error.hpp>
#include <tandem/graph/graph.hpp>

namespace tandem::graph {

// What a file may hold: enough for any program, and little enough for our arithmetic and stack.
inline constexpr int kMaxListDepth = 32;
inline constexpr std::size_t kMaxDims = 64;
inline constexpr std::int64_t kMaxNumel = std::int64_t{1} << 62;
inline constexpr int kMaxWorldSize = 1 << 20;

/// Errors: kParse for a negative size, as many strides as there are not sizes, or too many elements.
[[nodiscard]] Result<void> check_type(const TensorType& type);

}  // namespace tandem::graph
