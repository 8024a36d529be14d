#include <gtest/gtest.h>

#include <cmath>

#include "graph/interpreter/attention.hpp"

namespace tandem::graph::interpreter {
namespace {

constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kHeads = 2;
constexpr std::int64_t kLength = 5;
constexpr std::int64_t kSize = 3;

/// f64, so that differences of it have enough digits.
HostTensor wave(double phase, std::int64_t length = kLength) {
  const Dims sizes{kBatch, kHeads, length, kSize};
  std::vector<double> values(static_cast<std::size_t>(numel(sizes)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(phase + 1.7 * static_cast<double>(i));
  return HostTensor::from(std::span<const double>(values), sizes, DType::kF64);
}

AttentionInput input(bool is_causal) {
  return {wave(0.1), wave(0.5), wave(0.9), is_causal, 0.6};
}

/// The sum over all of weights * attention(input).
double weighted(const AttentionInput& input, const HostTensor& weights) {
  const auto output = attention(input);
  EXPECT_TRUE(output);
  const auto x = elements<double>(output->out.view());
  const auto w = elements<double>(weights.view());
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * w[i];
  return sum;
}

HostTensor nudged(const HostTensor& x, std::size_t at, double by) {
  auto values = elements<double>(x.view());
  values[at] += by;
  return HostTensor::from(std::span<const double>(values), x.sizes(), x.dtype());
}

TEST(Attention, IsASoftmaxOfScaledProducts) {
  const AttentionInput in = input(false);
  const auto output = attention(in);
  ASSERT_TRUE(output);
  const auto q = elements<double>(in.q.view());
  const auto k = elements<double>(in.k.view());
  const auto v = elements<double>(in.v.view());
  // The last query of the last head.
  const std::size_t row = kBatch * kHeads * kLength - 1;
  const std::size_t first_key = row - (kLength - 1);
  double sum = 0;
  double want = 0;
  for (std::size_t j = 0; j < kLength; ++j) {
    double score = 0;
    for (std::size_t c = 0; c < kSize; ++c)
      score += in.scale * q[row * kSize + c] * k[(first_key + j) * kSize + c];
    sum += std::exp(score);
    want += std::exp(score) * v[(first_key + j) * kSize];
  }
  EXPECT_NEAR(elements<double>(output->out.view())[row * kSize], want / sum, 1e-12);
  EXPECT_NEAR(elements<double>(output->logsumexp.view())[row], std::log(sum), 1e-6);
}

TEST(Attention, IsCausalWhereAsked) {
  AttentionInput in = input(true);
  const auto output = attention(in);
  ASSERT_TRUE(output);
  const auto out = elements<double>(output->out.view());
  const auto v = elements<double>(in.v.view());
  for (std::size_t c = 0; c < kSize; ++c) EXPECT_NEAR(out[c], v[c], 1e-12);  // query 0 sees key 0 alone
}

TEST(Attention, GradientsAreDifferences) {
  constexpr double kNudge = 1e-5;
  for (const bool is_causal : {false, true}) {
    const AttentionInput in = input(is_causal);
    const HostTensor weights = wave(2.0);
    const auto output = attention(in);
    ASSERT_TRUE(output);
    const auto grads = attention_backward(in, *output, weights);
    ASSERT_TRUE(grads);
    for (std::size_t which = 0; which < 3; ++which) {
      const auto grad = elements<double>((*grads)[which].view());
      for (std::size_t i = 0; i < grad.size(); i += 7) {
        AttentionInput more = in;
        AttentionInput less = in;
        HostTensor AttentionInput::*const members[] = {&AttentionInput::q, &AttentionInput::k,
                                                       &AttentionInput::v};
        more.*members[which] = nudged(in.*members[which], i, kNudge);
        less.*members[which] = nudged(in.*members[which], i, -kNudge);
        const double want = (weighted(more, weights) - weighted(less, weights)) / (2 * kNudge);
        EXPECT_NEAR(grad[i], want, 1e-6)
            << "gradient " << which << " element " << i << " causal " << is_causal;
      }
    }
  }
}

TEST(Attention, RefusesShapesThatDoNotFit) {
  AttentionInput in = input(false);
  in.k = wave(0.5, kLength + 1);
  const auto output = attention(in);
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().text(), "attention of q [2, 2, 5, 3], k [2, 2, 6, 3] and v [2, 2, 5, 3]");
}

}  // namespace
}  // namespace tandem::graph::interpreter
