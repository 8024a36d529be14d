#pragma once

#include <cstdint>
#include <tandem/base/error.hpp>
#include <tandem/graph/graph.hpp>

namespace tandem::graph {

// What a file may hold: enough for any program, and little enough for our arithmetic and stack.
inline constexpr int kMaxListDepth = 32;
inline constexpr int kMaxPartDepth = 8;  // of programs that are attributes of others
inline constexpr std::size_t kMaxDims = 64;
inline constexpr std::int64_t kMaxNumel = std::int64_t{1} << 62;
inline constexpr int kMaxWorldSize = 1 << 20;

/// Errors: kParse for a negative size, as many strides as there are not sizes, or too many elements.
[[nodiscard]] Result<void> check_type(const TensorType& type);
/// Of an attribute. Errors: kParse for one that is neither a number, a truth value nor a repr.
[[nodiscard]] Result<void> check_elements(const Argument::List& elements);

}  // namespace tandem::graph
