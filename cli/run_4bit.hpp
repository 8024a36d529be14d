#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "command.hpp"

namespace tandem::cli {

/// `run matmul_4bit`: the flags that it takes.
struct FourBitRun {
  std::string a;
  std::string b;
  std::string bias;  ///< or empty
  std::string out;
  bool transpose_b = false;
  std::optional<std::int64_t> group_size;  ///< unset: 32
};

/// Rounds b to 4 bits, packs it, multiplies, and prints how far the result is from float64. Throws Failure.
int run_4bit(const FourBitRun& flags, const Invocation& invocation);

}  // namespace tandem::cli
