#include "memory_need.hpp"

#include "base/byte_size.hpp"
#include "base/memory_limit.hpp"
#include "failure.hpp"

namespace tandem::cli {

std::int64_t bytes_of(const Dims& sizes, DType dtype) {
  return byte_size(sizes, dtype, "").value_or(kMostBytes);
}

std::int64_t sum_of_bytes(std::initializer_list<std::int64_t> parts) {
  std::int64_t sum = 0;
  for (const std::int64_t part : parts) sum = add_bytes(sum, part);
  return sum;
}

std::int64_t times_bytes(std::int64_t count, std::int64_t num_bytes) {
  return multiply_bytes(count, num_bytes);
}

std::int64_t bytes_of_results(const harness::Problem& problem) {
  std::int64_t sum = 0;
  for (int i = 0; i < static_cast<int>(problem.n.size()); ++i)
    sum = add_bytes(sum, bytes_of(problem.result_sizes(i), problem.out_dtype()));
  return sum;
}

std::int64_t bytes_of_ranks(const harness::Problem& problem) {
  // Ranks share a and each b between them: a by the dimension that is gathered or by k, b by columns or by k.
  const std::int64_t a = bytes_of(problem.a, problem.dtype);
  std::int64_t sum = add_bytes(a, problem.gathered ? multiply_bytes(problem.ranks, a) : 0);
  for (const std::int64_t n : problem.n) sum = add_bytes(sum, bytes_of({problem.k(), n}, problem.dtype));
  const bool all_have_results = problem.op == harness::Op::kMatmulAllReduce;
  return add_bytes(sum, multiply_bytes(all_have_results ? problem.ranks : 1, bytes_of_results(problem)));
}

std::int64_t bytes_of_product(const harness::ProductSizes& sizes, DType dtype) {
  return sum_of_bytes({bytes_of({sizes.m, sizes.k}, dtype), bytes_of({sizes.k, sizes.n}, dtype),
                       bytes_of({sizes.m, sizes.n}, dtype)});
}

void check_memory_need(std::string_view what, std::int64_t num_bytes) {
  if (const auto enough = check_memory(what, num_bytes); !enough) throw Failure(kBadInput, enough.error());
}

}  // namespace tandem::cli
