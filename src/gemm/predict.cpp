#include "gemm/predict.hpp"

#include "gemm/choose.hpp"

namespace tandem::gemm {

std::optional<double> Implementation::predicted_us(const Problem&) const {
  return std::nullopt;
}

std::optional<double> Implementation::predicted_async_input_us(const AsyncInputProblem&, std::int64_t) const {
  return std::nullopt;
}

std::optional<double> predicted_us(const Problem& problem, const Device& device) {
  const Implementation* found = choose(problem, device, &Implementation::accepts, nullptr);
  return found == nullptr ? std::nullopt : found->predicted_us(problem);
}

std::optional<double> predicted_us(const AsyncInputProblem& problem, std::int64_t complete_chunks,
                                   const Device& device) {
  const Implementation* found = choose(problem, device, &Implementation::accepts_async_input, nullptr);
  return found == nullptr ? std::nullopt : found->predicted_async_input_us(problem, complete_chunks);
}

}  // namespace tandem::gemm
