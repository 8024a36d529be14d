#include <optional>

#include "fuzz/check.hpp"
#include "fuzz/parsers.hpp"
#include "harness/failure.hpp"
#include "harness/problem.hpp"

namespace tandem::fuzz {
namespace {

using harness::Problem;
using harness::Window;

std::optional<Problem> parse(const std::string& line) {
  try {
    return harness::parse_problem(line);
  } catch (const harness::Failure& failure) {
    const bool has_code =
        failure.exit_code() == harness::kBadInput || failure.exit_code() == harness::kNotSupported;
    check(has_code, "a refusal with exit code " + std::to_string(failure.exit_code()));
    check(!failure.error().text().empty(), "a refusal without a text");
    return std::nullopt;
  }
}

void check_inside(const Window& window, const Dims& sizes) {
  check(window.dim >= 0 && window.dim < sizes.size(), "a window of no dimension");
  const Shard& shard = window.shard;
  check(shard.offset >= 0 && shard.size >= 0 && shard.size <= sizes[window.dim] &&
            shard.offset <= sizes[window.dim] - shard.size,
        "a window outside of its tensor");
}

/// Every rank's part of every tensor is inside.
void check_windows(const Problem& problem, int rank) {
  check_inside(window_of_a(problem, rank), problem.a);
  if (problem.is_scaled()) check_inside(window_of_a_scale(problem, rank), a_scale_sizes(problem));
  // The others are like these.
  constexpr std::size_t kMostProducts = 4;
  for (std::size_t idx = 0; idx < std::min(problem.n.size(), kMostProducts); ++idx) {
    const auto i = static_cast<int>(idx);
    check_inside(window_of_b(problem, i, rank), {problem.k(), problem.n[idx]});
    check_inside(window_of_bias(problem, i, rank), {problem.n[idx]});
    check_inside(window_of_result(problem, i, rank), problem.result_sizes(i));
    if (problem.is_scaled()) check_inside(window_of_b_scale(problem, i, rank), b_scale_sizes(problem, i));
  }
}

}  // namespace

bool try_problem(std::string_view bytes) {
  const auto problem = parse(std::string(bytes));
  if (!problem) return false;
  const std::string line = to_line(*problem);
  const auto again = parse(line);
  check(again && to_line(*again) == line, "written and read as another problem: " + line);
  for (int rank = 0; rank < problem->ranks; ++rank) check_windows(*problem, rank);
  const harness::ProductSizes sizes = product_of_a_rank(*problem);
  check(sizes.m >= 0 && sizes.n >= 0 && sizes.k >= 0, "a product of less than nothing: " + line);
  return true;
}

}  // namespace tandem::fuzz
