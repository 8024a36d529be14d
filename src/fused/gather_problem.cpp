#include "fused/gather_problem.hpp"

#include "base/format.hpp"
#include "base/hash.hpp"

namespace tandem::fused {

std::int64_t GatherProblem::rows() const {
  std::int64_t product = 1;
  for (int d = 0; d < sizes.size() - 1; ++d) product *= sizes[d];
  return product;
}

std::int64_t GatherProblem::unit_rows() const {
  std::int64_t product = gathers_last() ? 0 : 1;
  for (int d = 0; d < sizes.size() - 1; ++d) product *= d == dim ? 1 : sizes[d];
  return product;
}

std::int64_t GatherProblem::unit_elements() const {
  return gathers_last() ? rows() : unit_rows() * k();
}

std::size_t hash_of(const GatherProblem& p) {
  return Hash()
      .add(p.dtype)
      .add(p.sizes)
      .add(p.dim)
      .add(p.asked)
      .add(p.in_place_offset)
      .add(p.plan_n)
      .add(p.num_b)
      .add(p.sum_n)
      .add(p.keeps_gathered)
      .add(p.copies_a)
      .add(p.has_bias)
      .add(p.is_capturing)
      .add(p.patch_peers)
      .add(p.by_mm)
      .value();
}

std::string to_string(const GatherProblem& problem) {
  return fmt::format(
      "{} {} dim {} w{}{}{}", to_string(problem.dtype), to_string(problem.sizes), problem.dim, problem.world,
      problem.plan_n == 0 ? "" : fmt::format(" plan_n {}", problem.plan_n),
      problem.in_place_offset < 0 ? "" : fmt::format(" in place at {}", problem.in_place_offset));
}

}  // namespace tandem::fused
