#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <tandem/base/dtype.hpp>
#include <tandem/base/shape.hpp>

#include "harness/problem.hpp"

namespace tandem::cli {

// Memory that a command needs at least, from the sizes that it was given. It is asked for before anything
// starts, for all ranks of this host together. What comes on top is refused where it is allocated.

// Numbers of bytes, their sums and their products stop at 2^62, which no machine has.

[[nodiscard]] std::int64_t bytes_of(const Dims& sizes, DType dtype);
/// Of several numbers of bytes.
[[nodiscard]] std::int64_t sum_of_bytes(std::initializer_list<std::int64_t> parts);
[[nodiscard]] std::int64_t times_bytes(std::int64_t count, std::int64_t num_bytes);

/// Of the operands and results of all ranks of a problem, in host memory.
[[nodiscard]] std::int64_t bytes_of_ranks(const harness::Problem& problem);
/// Of its results, each once and whole.
[[nodiscard]] std::int64_t bytes_of_results(const harness::Problem& problem);
/// Of one product [m, k] x [k, n] with its operands.
[[nodiscard]] std::int64_t bytes_of_product(const harness::ProductSizes& sizes, DType dtype);

/// Throws exit 2, with the bytes asked for and available, unless `num_bytes` can be had.
void check_memory_need(std::string_view what, std::int64_t num_bytes);

}  // namespace tandem::cli
