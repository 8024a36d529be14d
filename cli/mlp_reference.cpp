#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tandem/base/convert.hpp>
#include <tandem/base/shard.hpp>
#include <utility>

#include "failure.hpp"
#include "mlp.hpp"
#include "rank_job.hpp"

namespace tandem::cli {

using harness::Expected;
using harness::OperandKind;
using harness::Scales;

namespace {

std::string key_of_part(std::int64_t token, int rank) {
  return fmt::format("demo/token {}/rank {}", token, rank);
}

}  // namespace

/// Counts what is wrong, and keeps the largest error.
class MlpReference::Comparison {
 public:
  Comparison(int rank, harness::Wrong& wrong) : rank_(rank), wrong_(wrong) {}

  void compare(const char* name, std::int64_t token, std::int64_t column, double got,
               const Expected& expected) {
    if (is_right(got, expected)) {
      const double error = std::abs(got - expected.value);
      if (error > 0) worst_ = std::max(worst_, error / expected.tolerance);
      return;
    }
    wrong_.add(fmt::format("{}[{}, {}] on rank {}: got {}, need {} +- {:.3g} (float64)", name, token, column,
                           rank_, got, expected.value, expected.tolerance));
  }
  /// As a part of its bound.
  [[nodiscard]] double worst() const { return worst_; }

 private:
  int rank_;
  harness::Wrong& wrong_;
  double worst_ = 0;
};

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
  constexpr std::int64_t kCopies = 2;  // on the rank that makes them, and in the store
  return kCopies * num_samples(sizes, world) * world * static_cast<std::int64_t>(sizeof(Expected));
}

MlpReference::MlpReference(const MlpWeights& weights, const Session& session)
    : weights_(weights), session_(session), tokens_(sampled_tokens(weights.sizes, weights.world)) {}

double MlpReference::compare(const MlpOutputs& got, harness::Wrong& wrong) const {
  Comparison comparison(weights_.rank, wrong);
  compare_projection(0, got.gate.host(), comparison);
  compare_projection(1, got.up.host(), comparison);
  send_parts(compare_activation(got, comparison));
  session_.meet("demo reference");
  Comparison of_y(weights_.rank, wrong);
  compare_y(got.y.host(), of_y);
  return of_y.worst();
}

void MlpReference::compare_projection(int idx, const TensorView& got, Comparison& comparison) const {
  constexpr const char* kNames[] = {"gate", "up"};
  const auto& [problem, source] = weights_.gather;
  std::vector<std::vector<double>> rows;
  for (const std::int64_t token : tokens_)
    rows.push_back(line_of(problem, *source, {OperandKind::kA}, token));
  const std::int64_t n = got.size(1);
  for (std::int64_t column = 0; column < n; ++column) {
    const std::vector<double> factors = line_of(problem, *source, {OperandKind::kB, idx}, column);
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      comparison.compare(kNames[idx], tokens_[i], column, element_as_f64(got, tokens_[i] * n + column),
                         expect(problem, rows[i], factors, 0));
    }
  }
}

std::vector<std::vector<double>> MlpReference::compare_activation(const MlpOutputs& got,
                                                                  Comparison& comparison) const {
  constexpr double kRoundoff = 0x1p-18;  // of an exponential and some more operations in f32
  const Scales scales = weights_.scatter.problem.scales;
  const std::int64_t n = got.activated.view().size(1);
  std::vector<std::vector<double>> rows;
  for (const std::int64_t token : tokens_) {
    std::vector<Expected> row;
    double largest = 0;
    for (std::int64_t i = token * n; i < (token + 1) * n; ++i) {
      const double gate = got.gate.at(i);
      const double value = gate / (1 + std::exp(-gate)) * got.up.at(i);
      row.push_back({value, kRoundoff * std::abs(value)});
      if (scales == Scales::kRow) row.back() = rounded(row.back(), DType::kBF16);
      largest = std::max(largest, std::abs(value));
    }
    double scale = scales == Scales::kTensor ? kActivationScale : 1;
    if (scales == Scales::kRow) {
      scale = got.scale.at(token);
      const double need = largest == 0 ? 1 : largest / 448;
      comparison.compare("scale of silu(gate) * up", token, 0, scale,
                         {need, 2 * harness::rounding_error(DType::kBF16, need)});
    }
    std::vector<double>& values = rows.emplace_back();
    for (std::int64_t i = 0; i < n; ++i) {
      const Expected& unscaled = row[static_cast<std::size_t>(i)];
      const double element = got.activated.at(token * n + i);
      comparison.compare(
          "silu(gate) * up", token, i, element,
          harness::rounded({unscaled.value / scale, unscaled.tolerance / scale}, got.activated.view().dtype));
      values.push_back(element * scale);
    }
  }
  return rows;
}

void MlpReference::send_parts(const std::vector<std::vector<double>>& activated) const {
  const MlpFactors& factors = weights_.scatter;
  std::vector<std::vector<Expected>> parts(tokens_.size());
  for (std::int64_t j = 0; j < weights_.sizes.hidden; ++j) {
    const std::vector<double> column = line_of(factors.problem, *factors.source, {OperandKind::kB}, j);
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      parts[i].push_back(expect(factors.problem, activated[i], column, 0));
  }
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    set_large(session_.group().store(), key_of_part(tokens_[i], weights_.rank),
              std::as_bytes(std::span(parts[i])));
  }
}

Expected MlpReference::sum_of_parts(std::span<const Expected> parts) const {
  const auto num_hosts = static_cast<std::size_t>(session_.group().num_hosts());
  if (num_hosts == 1) return harness::sum_in_f32(parts);
  const std::size_t per_host = parts.size() / num_hosts;
  std::vector<Expected> sent;
  sent.reserve(num_hosts);
  for (std::size_t host = 0; host < num_hosts; ++host) {
    sent.push_back(rounded(harness::sum_in_f32(parts.subspan(host * per_host, per_host)), DType::kBF16));
  }
  return harness::sum_in_f32(sent);
}

void MlpReference::compare_y(const TensorView& got, Comparison& comparison) const {
  const std::int64_t hidden = weights_.sizes.hidden;
  const Shard mine = shard_of(weights_.sizes.tokens, weights_.world, weights_.rank);
  for (const std::int64_t token : tokens_) {
    const std::int64_t row = token - mine.offset;
    if (row < 0 || row >= mine.size) continue;
    std::vector<Store::Bytes> parts;
    parts.reserve(static_cast<std::size_t>(weights_.world));
    for (int rank = 0; rank < weights_.world; ++rank)
      parts.push_back(get_large(session_.group().store(), key_of_part(token, rank)));
    for (std::int64_t j = 0; j < hidden; ++j) {
      std::vector<Expected> sent(parts.size());
      for (std::size_t r = 0; r < parts.size(); ++r)
        std::memcpy(&sent[r], parts[r].data() + static_cast<std::size_t>(j) * sizeof(Expected),
                    sizeof(Expected));
      comparison.compare("y", token, j, element_as_f64(got, row * hidden + j),
                         rounded(sum_of_parts(sent), DType::kBF16));
    }
  }
}

}  // namespace tandem::cli
