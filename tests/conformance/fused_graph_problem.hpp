#pragma once

#include <cstdint>
#include <string>
#include <tandem/tandem.hpp>

#include "harness/problem.hpp"

namespace tandem::test {

/// What tests of graphs call again and again.
struct Problem {
  bool gathers = true;
  Algorithm algorithm = Algorithm::kPipelined;
  int dim = 0;
  std::int64_t m = 10;  ///< of the whole product
  std::int64_t k = 32;  ///< of a rank
  std::int64_t n = 24;  ///< of a rank
};

/// Over all ranks.
inline harness::Problem whole_of(const Problem& p, int world) {
  harness::Problem line;
  line.op = p.gathers ? harness::Op::kAllGatherMatmul : harness::Op::kMatmulReduceScatter;
  line.a = {p.m, p.gathers ? p.k : p.k * world};
  line.n = {p.gathers ? p.n * world : p.n};
  line.dtype = DType::kBF16;
  line.dim = p.dim;
  line.ranks = world;
  line.algorithm = p.algorithm;
  return line;
}

/// The problem as the tool takes it, with values of its own.
inline std::string to_text(const Problem& p, int world) {
  return "--problem " + to_line(whole_of(p, world));
}

}  // namespace tandem::test
