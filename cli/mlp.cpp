#include "mlp.hpp"

#include <cmath>
#include <tandem/base/numeric.hpp>
#include <tandem/base/shard.hpp>
#include <tandem/fused/all_gather_matmul.hpp>
#include <tandem/fused/matmul_reduce_scatter.hpp>
#include <tandem/gemm/mm.hpp>

#include "failure.hpp"
#include "harness/operands.hpp"
#include "mlp_activation.hpp"

namespace tandem::cli {
namespace {

enum Seed : std::uint64_t { kSeedX = 101, kSeedGate, kSeedUp, kSeedDown };

Tensor generated(Seed seed, const Dims& whole, const harness::Window& window, float scale) {
  Dims sizes = whole;
  sizes[window.dim] = window.shard.size;
  Tensor tensor = Tensor::host(sizes, DType::kBF16);
  harness::generate({seed, whole, window.dim, window.shard.offset, scale}, tensor.view());
  return tensor;
}

// Weights of this size keep every activation near 1.
float weight_scale(std::int64_t inner) {
  return 3.0F / std::sqrt(static_cast<float>(inner));
}

}  // namespace

MlpWeights::MlpWeights(const MlpSizes& whole, int own_rank, int num_ranks)
    : sizes(whole), rank(own_rank), world(num_ranks) {
  const Dims projection{sizes.intermediate, sizes.hidden};
  const Shard inner = shard_of(sizes.intermediate, world, rank);
  x = generated(kSeedX, {sizes.tokens, sizes.hidden}, {0, shard_of(sizes.tokens, world, rank)}, 1.0F);
  gate = generated(kSeedGate, projection, {0, inner}, weight_scale(sizes.hidden));
  up = generated(kSeedUp, projection, {0, inner}, weight_scale(sizes.hidden));
  down =
      generated(kSeedDown, {sizes.hidden, sizes.intermediate}, {1, inner}, weight_scale(sizes.intermediate));
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
      stopwatch_(session.device(), session.group(), session.stream()),
      x_(weights.x.view()),
      gate_weights_(weights.gate.view()),
      up_weights_(weights.up.view()),
      down_weights_(weights.down.view()) {
  Device& device = session.device();
  const std::int64_t columns = weights.gate.view().size(0);
  const Dims inner{sizes_.tokens, columns};
  for (MlpOutputs* out : {&out_, &unchecked_}) {
    out->gate = harness::GuardedTensor(device, inner, DType::kBF16);
    out->up = harness::GuardedTensor(device, inner, DType::kBF16);
    out->activated = harness::GuardedTensor(device, inner, DType::kBF16);
    out->y = harness::GuardedTensor(device, {weights.x.view().size(0), sizes_.hidden}, DType::kBF16);
  }
  const Dims tokens{sizes_.tokens, sizes_.hidden};
  const Tensor whole_x = generated(kSeedX, tokens, {0, {0, sizes_.tokens}}, 1.0F);
  gathered_ = take(device.allocate_tensor(tokens, DType::kBF16));
  take(device.copy_from_host(whole_x.view().data, gathered_.view()));
  unscattered_ = take(device.allocate_tensor(tokens, DType::kBF16));
  for (auto& mark : marks_) mark = take(device.create_event());
  take(prepare_activation(device));
  if (!device.is_host_accessible()) {
    for (TensorView* operand : {&x_, &gate_weights_, &up_weights_, &down_weights_}) {
      copies_.push_back(take(device.allocate_tensor(operand->sizes, operand->dtype)));
      take(device.copy_from_host(operand->data, copies_.back().view()));
      *operand = copies_.back().view();
    }
  }
  for (TensorView* stored : {&gate_weights_, &up_weights_, &down_weights_}) *stored = stored->movedim(1, 0);
  // A card and its links that have been idle are slower than they are in a model that runs.
  constexpr int kPassesBefore = 2;
  stopwatch_.load_before([this] { enqueue(kSerialMlp, unchecked_); }, kPassesBefore);
  // Loads them: while another rank's kernels wait for this one, that could wait for those.
  enqueue_products();
  session.finish();
}

// y has a standard deviation of about 1. Its parts, each rounded to bf16, may be off by 2 u of themselves,
// and so may the activations it is summed from: both come to 2 u of y, six times that.
double Mlp::slack_of_result(std::size_t i) {
  constexpr std::size_t kY = 2;
  return i == kY ? 2 * 6 * 2 * harness::unit_roundoff(DType::kBF16) : 0;
}

MlpTimes Mlp::forward(const MlpAlgorithms& by) {
  for (const harness::GuardedTensor* tensor : {&out_.gate, &out_.up, &out_.activated, &out_.y})
    tensor->poison();
  stopwatch_.stand_ready();
  enqueue(by, out_);
  const MlpTimes times = finish();
  for (const harness::GuardedTensor* tensor : results()) tensor->download();
  return times;
}

MlpTimes Mlp::products_alone() {
  stopwatch_.stand_ready();
  enqueue_products();
  return finish();
}

MlpTimes Mlp::finish() {
  session_.finish();
  MlpTimes times{};
  for (int step = 0; step < kWholeMlp; ++step) {
    const auto idx = static_cast<std::size_t>(step);
    times[idx] = take(marks_[idx + 1]->elapsed_us(*marks_[0]));
  }
  times[kWholeMlp] = times[kWholeMlp - 1];
  return times;
}

void Mlp::enqueue(const MlpAlgorithms& by, const MlpOutputs& out) {
  Stream& stream = session_.stream();
  Group& group = session_.group();
  const std::array<TensorView, 2> projections{gate_weights_, up_weights_};
  const std::array<TensorView, 2> projected{out.gate.view(), out.up.view()};
  AllGatherMatmulArgs gather;
  gather.a = x_;
  gather.b = projections;
  gather.gather_size = sizes_.tokens;
  gather.out = projected;
  gather.algorithm = by.gather;
  gather.plan_n = 2 * shard_stride(sizes_.intermediate, session_.size());

  MatmulReduceScatterArgs scatter;
  scatter.a = std::span(&out.activated.view(), 1);
  scatter.b = std::span(&down_weights_, 1);
  scatter.out = out.y.view();
  scatter.algorithm = by.scatter;
  scatter.plan_k = shard_stride(sizes_.intermediate, session_.size());

  take(stream.record(*marks_[kGatherGateUp]));
  gather_report_ = take(fused_all_gather_matmul(gather, group, stream));
  take(stream.record(*marks_[kActivation]));
  take(enqueue_activation({out.gate.view(), out.up.view(), out.activated.view()}, stream));
  take(stream.record(*marks_[kDownScatter]));
  scatter_report_ = take(fused_matmul_reduce_scatter(scatter, group, stream));
  take(stream.record(*marks_[kWholeMlp]));
}

void Mlp::enqueue_products() {
  Stream& stream = session_.stream();
  const MlpOutputs& out = unchecked_;
  take(stream.record(*marks_[kGatherGateUp]));
  take(gemm::mm({.a = gathered_.view(), .b = gate_weights_, .out = out.gate.view(), .bias = {}}, stream));
  take(gemm::mm({.a = gathered_.view(), .b = up_weights_, .out = out.up.view(), .bias = {}}, stream));
  take(stream.record(*marks_[kActivation]));
  take(enqueue_activation({out.gate.view(), out.up.view(), out.activated.view()}, stream));
  take(stream.record(*marks_[kDownScatter]));
  take(gemm::mm({.a = out.activated.view(), .b = down_weights_, .out = unscattered_.view(), .bias = {}},
                stream));
  take(stream.record(*marks_[kWholeMlp]));
}

}  // namespace tandem::cli
