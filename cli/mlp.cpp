#include "mlp.hpp"

#include <cmath>
#include <tandem/base/numeric.hpp>
#include <tandem/base/shard.hpp>
#include <tandem/fused/all_gather_matmul.hpp>
#include <tandem/fused/matmul_reduce_scatter.hpp>

#include "failure.hpp"
#include "mlp_activation.hpp"
#include "operands.hpp"

namespace tandem::cli {
namespace {

enum Seed : std::uint64_t { kSeedX = 101, kSeedGate, kSeedUp, kSeedDown };

Tensor generated(Seed seed, const Dims& whole, const Window& window, float scale) {
  Dims sizes = whole;
  sizes[window.dim] = window.shard.size;
  Tensor tensor = Tensor::host(sizes, DType::kBF16);
  generate({seed, whole, window.dim, window.shard.offset, scale}, tensor.view());
  return tensor;
}

// Weights of this size keep every activation near 1.
float weight_scale(std::int64_t inner) {
  return 3.0F / std::sqrt(static_cast<float>(inner));
}

}  // namespace

MlpWeights::MlpWeights(const MlpSizes& whole, int own_rank, int num_ranks)
    : sizes(whole), rank(own_rank), world(num_ranks) {
  const Dims projection{sizes.hidden, sizes.intermediate};
  const Shard columns = shard_of(sizes.intermediate, world, rank);
  x = generated(kSeedX, {sizes.tokens, sizes.hidden}, {0, shard_of(sizes.tokens, world, rank)}, 1.0F);
  gate = generated(kSeedGate, projection, {1, columns}, weight_scale(sizes.hidden));
  up = generated(kSeedUp, projection, {1, columns}, weight_scale(sizes.hidden));
  down = generated(kSeedDown, {sizes.intermediate, sizes.hidden}, {0, columns},
                   weight_scale(sizes.intermediate));
}

std::vector<double> MlpWeights::row_of_x(std::int64_t token) const {
  const Tensor row = generated(kSeedX, {sizes.tokens, sizes.hidden}, {0, {token, 1}}, 1.0F);
  std::vector<double> values(static_cast<std::size_t>(sizes.hidden));
  const auto* bits = row.view().data_as<const BF16>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = to_f32(bits[i]);
  return values;
}

Mlp::Mlp(const MlpWeights& weights, const Session& session)
    : sizes_(weights.sizes),
      session_(session),
      x_(weights.x.view()),
      gate_weights_(weights.gate.view()),
      up_weights_(weights.up.view()),
      down_weights_(weights.down.view()) {
  Device& device = session.device();
  const std::int64_t columns = weights.gate.view().size(1);
  const Dims inner{weights.sizes.tokens, columns};
  gate_ = GuardedTensor(device, inner, DType::kBF16);
  up_ = GuardedTensor(device, inner, DType::kBF16);
  activated_ = GuardedTensor(device, inner, DType::kBF16);
  y_ = GuardedTensor(device, {weights.x.view().size(0), weights.sizes.hidden}, DType::kBF16);
  for (auto& mark : marks_) mark = take(device.create_event());
  take(prepare_activation(device));
  if (device.is_host_accessible()) return;
  for (TensorView* operand : {&x_, &gate_weights_, &up_weights_, &down_weights_}) {
    copies_.push_back(take(device.allocate_tensor(operand->sizes, operand->dtype)));
    take(device.copy_from_host(operand->data, copies_.back().view()));
    *operand = copies_.back().view();
  }
}

// y has a standard deviation of about 1. Its parts, each rounded to bf16, may be off by 2 u of themselves,
// and so may the activations it is summed from: both come to 2 u of y, six times that.
double Mlp::slack_of_result(std::size_t i) {
  constexpr std::size_t kY = 2;
  return i == kY ? 2 * 6 * 2 * unit_roundoff(DType::kBF16) : 0;
}

MlpTimes Mlp::forward(Algorithm algorithm) {
  for (const GuardedTensor* tensor : {&gate_, &up_, &activated_, &y_}) tensor->poison();
  session_.meet("demo");
  enqueue(algorithm);
  session_.finish();
  for (const GuardedTensor* tensor : results()) tensor->download();
  MlpTimes times{};
  for (int step = 0; step < kWholeMlp; ++step) {
    const auto idx = static_cast<std::size_t>(step);
    times[idx] = take(marks_[idx + 1]->elapsed_us(*marks_[idx]));
  }
  times[kWholeMlp] = take(marks_[kWholeMlp]->elapsed_us(*marks_[0]));
  return times;
}

void Mlp::enqueue(Algorithm algorithm) {
  Stream& stream = session_.stream();
  Group& group = session_.group();
  const std::array<TensorView, 2> projections{gate_weights_, up_weights_};
  const std::array<TensorView, 2> projected{gate_.view(), up_.view()};
  AllGatherMatmulArgs gather;
  gather.a = x_;
  gather.b = projections;
  gather.gather_size = sizes_.tokens;
  gather.out = projected;
  gather.algorithm = algorithm;
  gather.plan_n = 2 * shard_stride(sizes_.intermediate, session_.size());

  MatmulReduceScatterArgs scatter;
  scatter.a = std::span(&activated_.view(), 1);
  scatter.b = std::span(&down_weights_, 1);
  scatter.out = y_.view();
  scatter.algorithm = algorithm;
  scatter.plan_k = shard_stride(sizes_.intermediate, session_.size());

  take(stream.record(*marks_[kGatherGateUp]));
  gather_report_ = take(fused_all_gather_matmul(gather, group, stream));
  take(stream.record(*marks_[kActivation]));
  take(enqueue_activation({gate_.view(), up_.view(), activated_.view()}, stream));
  take(stream.record(*marks_[kDownScatter]));
  scatter_report_ = take(fused_matmul_reduce_scatter(scatter, group, stream));
  take(stream.record(*marks_[kWholeMlp]));
}

}  // namespace tandem::cli
