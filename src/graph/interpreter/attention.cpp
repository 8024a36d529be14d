#include "graph/interpreter/attention.hpp"

#include <algorithm>
#include <cmath>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::graph::interpreter {
namespace {

struct Shape {
  std::int64_t batch_heads, queries, keys, size, v_size;
};

Result<Shape> shape_of(const AttentionInput& input) {
  const Dims& q = input.q.sizes();
  const Dims& k = input.k.sizes();
  const Dims& v = input.v.sizes();
  const bool fits = q.size() == 4 && k.size() == 4 && v.size() == 4 && q[0] == k[0] && q[0] == v[0] &&
                    q[1] == k[1] && q[1] == v[1] && q[3] == k[3] && k[2] == v[2] && k[2] > 0;
  if (!fits) {
    return failf(ErrorCode::kInvalidArgument, "attention of q {}, k {} and v {}", to_string(q), to_string(k),
                 to_string(v));
  }
  return Shape{q[0] * q[1], q[2], k[2], q[3], v[3]};
}

/// Keys that query i sees.
std::int64_t visible(const AttentionInput& input, const Shape& shape, std::int64_t i) {
  return input.is_causal ? std::min(i + 1, shape.keys) : shape.keys;
}

/// What is added to the scaled product of a query (a row of all batches and heads) and a key; nothing where
/// the program has no mask.
class Mask {
 public:
  static Result<Mask> of(const AttentionInput& input, const Shape& shape) {
    Mask mask;
    mask.keys_ = shape.keys;
    if (!input.mask) return mask;
    const Dims& q = input.q.sizes();
    const Dims sizes{q[0], q[1], shape.queries, shape.keys};
    TANDEM_ASSIGN(const Dims wide, broadcast_sizes(input.mask->sizes(), sizes));
    if (!(wide == sizes)) {
      return failf(ErrorCode::kInvalidArgument, "a mask of {} for an attention of {}",
                   to_string(input.mask->sizes()), to_string(sizes));
    }
    mask.addends_ = elements<double>(broadcast(input.mask->view(), sizes));
    if (input.mask->dtype() != DType::kBool) return mask;
    for (double& addend : mask.addends_) addend = addend != 0 ? 0 : -INFINITY;
    return mask;
  }
  [[nodiscard]] double at(std::int64_t row, std::int64_t key) const {
    return addends_.empty() ? 0 : addends_[static_cast<std::size_t>(row * keys_ + key)];
  }

 private:
  std::vector<double> addends_;
  std::int64_t keys_ = 0;
};

/// Of a score in a softmax over scores whose log-sum-exp is given; 0 for a key that is not seen, also in a
/// row that sees none.
double weight_of(double score, double logsumexp) {
  return score == -INFINITY ? 0 : std::exp(score - logsumexp);
}

double dot(const double* x, const double* y, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

/// to += factor * from
void add(double factor, const double* from, double* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

HostTensor rounded(const std::vector<double>& values, const HostTensor& like) {
  return HostTensor::from(std::span<const double>(values), like.sizes(), like.dtype());
}

}  // namespace

Result<AttentionOutput> attention(const AttentionInput& input) {
  TANDEM_ASSIGN(const Shape shape, shape_of(input));
  TANDEM_ASSIGN(const Mask mask, Mask::of(input, shape));
  const auto q = elements<double>(input.q.view());
  const auto k = elements<double>(input.k.view());
  const auto v = elements<double>(input.v.view());
  std::vector<double> out(static_cast<std::size_t>(shape.batch_heads * shape.queries * shape.v_size), 0.0);
  std::vector<double> logsumexp(static_cast<std::size_t>(shape.batch_heads * shape.queries));
  std::vector<double> scores(static_cast<std::size_t>(shape.keys));
  for (std::int64_t row = 0; row < shape.batch_heads * shape.queries; ++row) {
    const std::int64_t first_key = row / shape.queries * shape.keys;
    const std::int64_t num_keys = visible(input, shape, row % shape.queries);
    double largest = -INFINITY;
    for (std::int64_t j = 0; j < num_keys; ++j) {
      double& score = scores[static_cast<std::size_t>(j)];
      score = input.scale * dot(&q[row * shape.size], &k[(first_key + j) * shape.size], shape.size) +
              mask.at(row, j);
      largest = std::max(largest, score);
    }
    double sum = 0;
    for (std::int64_t j = 0; j < num_keys; ++j)
      sum += weight_of(scores[static_cast<std::size_t>(j)], largest);
    logsumexp[static_cast<std::size_t>(row)] = largest + std::log(sum);
    for (std::int64_t j = 0; sum > 0 && j < num_keys; ++j) {
      const double weight = weight_of(scores[static_cast<std::size_t>(j)], largest) / sum;
      add(weight, &v[(first_key + j) * shape.v_size], &out[row * shape.v_size], shape.v_size);
    }
  }
  Dims sizes = input.q.sizes();
  Dims row_sizes = sizes;
  sizes[3] = shape.v_size;
  row_sizes[3] = 1;
  return AttentionOutput{HostTensor::from(std::span<const double>(out), sizes, input.q.dtype()),
                         HostTensor::from(std::span<const double>(logsumexp), row_sizes, DType::kF32)};
}

Result<std::array<HostTensor, 3>> attention_backward(const AttentionInput& input,
                                                     const AttentionOutput& output,
                                                     const HostTensor& grad_out) {
  TANDEM_ASSIGN(const Shape shape, shape_of(input));
  TANDEM_ASSIGN(const Mask mask, Mask::of(input, shape));
  const std::int64_t num_rows = shape.batch_heads * shape.queries;
  if (!(grad_out.sizes() == output.out.sizes()) || output.out.numel() != num_rows * shape.v_size ||
      output.logsumexp.numel() != num_rows) {
    return failf(
        ErrorCode::kInvalidArgument, "attention's gradient {} for an output of {} and logsumexp of {}",
        to_string(grad_out.sizes()), to_string(output.out.sizes()), to_string(output.logsumexp.sizes()));
  }
  const auto q = elements<double>(input.q.view());
  const auto k = elements<double>(input.k.view());
  const auto v = elements<double>(input.v.view());
  const auto out = elements<double>(output.out.view());
  const auto logsumexp = elements<double>(output.logsumexp.view());
  const auto grad = elements<double>(grad_out.view());
  std::vector<double> grad_q(q.size(), 0.0);
  std::vector<double> grad_k(k.size(), 0.0);
  std::vector<double> grad_v(v.size(), 0.0);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const std::int64_t first_key = row / shape.queries * shape.keys;
    const double* const row_grad = &grad[row * shape.v_size];
    const double mean = dot(row_grad, &out[row * shape.v_size], shape.v_size);
    for (std::int64_t j = 0; j < visible(input, shape, row % shape.queries); ++j) {
      const std::int64_t key = first_key + j;
      const double score =
          input.scale * dot(&q[row * shape.size], &k[key * shape.size], shape.size) + mask.at(row, j);
      const double weight = weight_of(score, logsumexp[static_cast<std::size_t>(row)]);
      add(weight, row_grad, &grad_v[key * shape.v_size], shape.v_size);
      const double grad_weight = dot(row_grad, &v[key * shape.v_size], shape.v_size);
      const double grad_score = input.scale * weight * (grad_weight - mean);
      add(grad_score, &k[key * shape.size], &grad_q[row * shape.size], shape.size);
      add(grad_score, &q[row * shape.size], &grad_k[key * shape.size], shape.size);
    }
  }
  return std::array{rounded(grad_q, input.q), rounded(grad_k, input.k), rounded(grad_v, input.v)};
}

}  // namespace tandem::graph::interpreter
