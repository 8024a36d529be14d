#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <tandem/tandem.hpp>

namespace tandem::test {

/// What tests of graphs call again and again.
struct Problem {
  bool gathers = true;
  Algorithm algorithm = Algorithm::kPipelined;
  int dim = 0;
  std::int64_t m = 10;
  std::int64_t k = 32;
  std::int64_t n = 24;
};

inline std::string to_text(const Problem& p) {
  return fmt::format("{} {} {}x{}x{} dim {}", p.gathers ? "gather" : "scatter", to_string(p.algorithm), p.m,
                     p.n, p.k, p.dim);
}

}  // namespace tandem::test
