#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tandem/base/convert.hpp>
#include <tandem/base/numeric.hpp>
#include <tandem/base/shard.hpp>

#include "failure.hpp"
#include "mlp.hpp"

namespace tandem::cli {
namespace {

/// The sum over k of x[k] * weights[row, k], for a weight [rows, k].
double times_row(const std::vector<double>& x, const TensorView& weights, std::int64_t row) {
  const BF16* values = weights.data_as<const BF16>() + row * weights.size(1);
  double sum = 0;
  for (std::size_t k = 0; k < x.size(); ++k) sum += x[k] * to_f32(values[k]);
  return sum;
}

double rounded(double value) {
  return to_f32(to_bf16(static_cast<float>(value)));
}

// Doubles that one rank adds for one sampled token: a sum and a sum of squares for each output.
std::int64_t part_size(const MlpSizes& sizes) {
  return 2 * sizes.hidden;
}

}  // namespace

std::vector<std::int64_t> MlpReference::sampled_tokens(const MlpSizes& sizes, int world) {
  constexpr std::int64_t kFewestSamples = 4096;
  const std::int64_t wanted = (kFewestSamples + sizes.hidden - 1) / sizes.hidden;
  const std::int64_t a_rank = std::max<std::int64_t>(2, (wanted + world - 1) / world);
  std::vector<std::int64_t> tokens;
  for (int rank = 0; rank < world; ++rank) {
    const Shard shard = shard_of(sizes.tokens, world, rank);
    const std::int64_t count = std::min(a_rank, shard.size);
    for (std::int64_t i = 0; i < count; ++i)
      tokens.push_back(shard.offset + (2 * i + 1) * shard.size / (2 * count));
  }
  return tokens;
}

std::int64_t MlpReference::num_samples(const MlpSizes& sizes, int world) {
  return static_cast<std::int64_t>(sampled_tokens(sizes, world).size()) * sizes.hidden;
}

std::int64_t MlpReference::bytes_needed(const MlpSizes& sizes, int world) {
  return num_samples(sizes, world) * 2 * world * static_cast<std::int64_t>(sizeof(double));
}

MlpReference::MlpReference(const MlpWeights& weights, const Session& session, const SharedBytes& shared)
    : weights_(weights),
      tokens_(sampled_tokens(weights.sizes, weights.world)),
      parts_(static_cast<const double*>(shared.data())) {
  const std::int64_t size = part_size(weights.sizes);
  auto* own =
      static_cast<double*>(shared.data()) + static_cast<std::int64_t>(tokens_.size()) * size * weights.rank;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    double* sums = own + static_cast<std::int64_t>(i) * size;
    add_own_part(tokens_[i], sums, sums + weights.sizes.hidden);
  }
  session.meet("demo reference");
}

void MlpReference::add_own_part(std::int64_t token, double* sums, double* squares) const {
  const std::vector<double> x = weights_.row_of_x(token);
  const std::int64_t inner = weights_.gate.view().size(0);
  std::vector<double> activated(static_cast<std::size_t>(inner));
  for (std::int64_t i = 0; i < inner; ++i) {
    const double g = rounded(times_row(x, weights_.gate.view(), i));
    const double up = rounded(times_row(x, weights_.up.view(), i));
    activated[static_cast<std::size_t>(i)] = rounded(g / (1 + std::exp(-g)) * up);
  }
  const auto* down = weights_.down.view().data_as<const BF16>();
  for (std::int64_t j = 0; j < weights_.sizes.hidden; ++j) {
    sums[j] = 0;
    squares[j] = 0;
    for (std::int64_t i = 0; i < inner; ++i) {
      const double product = activated[static_cast<std::size_t>(i)] * to_f32(down[j * inner + i]);
      sums[j] += product;
      squares[j] += product * product;
    }
  }
}

double MlpReference::compare(const TensorView& y, harness::Wrong& wrong) const {
  const std::int64_t hidden = weights_.sizes.hidden;
  const std::int64_t size = part_size(weights_.sizes);
  const Shard mine = shard_of(weights_.sizes.tokens, weights_.world, weights_.rank);
  const double u = harness::unit_roundoff(DType::kBF16);
  double worst = 0;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::int64_t row = tokens_[i] - mine.offset;
    if (row < 0 || row >= mine.size) continue;
    for (std::int64_t j = 0; j < hidden; ++j) {
      harness::Expected expected;
      double squares = 0;
      for (int rank = 0; rank < weights_.world; ++rank) {
        const double* part =
            parts_ + (static_cast<std::int64_t>(tokens_.size()) * rank + static_cast<std::int64_t>(i)) * size;
        expected.value += part[j];
        expected.tolerance += 1.01 * u * std::abs(part[j]);  // each rank's sum travels as bf16
        squares += part[hidden + j];
      }
      // One rounding of the result; and each activation may sit one bf16 step beside ours where f32 and f64
      // sums round apart: independent errors, six standard deviations.
      expected.tolerance += 1.01 * u * std::abs(expected.value) + 6 * 2 * u * std::sqrt(squares);
      const double got = element_as_f64(y, row * hidden + j);
      if (is_right(got, expected)) {
        worst = std::max(worst, std::abs(got - expected.value) / expected.tolerance);
        continue;
      }
      wrong.add(fmt::format("y[{}, {}] on rank {}: got {}, need {} +- {:.3g} (float64)", tokens_[i], j,
                            weights_.rank, got, expected.value, expected.tolerance));
    }
  }
  return worst;
}

}  // namespace tandem::cli
