#include "mlp.hpp"

#include <cmath>
#include <tandem/base/shard.hpp>
#include <tandem/gemm/quantize.hpp>
#include <utility>

#include "failure.hpp"
#include "mlp_activation.hpp"
#include "quantized_tensors.hpp"
#include "rank_op.hpp"

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

harness::Problem problem_of(const Dims& a, std::int64_t n, int num_b, const MlpTypes& types, int num_ranks) {
  harness::Problem problem;
  problem.a = a;
  problem.n.assign(static_cast<std::size_t>(num_b), n);
  problem.dtype = types.dtype;
  problem.scales = types.scales;
  problem.ranks = num_ranks;
  problem.b_is_column_major = true;
  problem.fast_accum = types.fast_accum;
  problem.by_tensor_cores = types.by_tensor_cores;
  return problem;
}

MlpFactors factors_of(const harness::Problem& problem, harness::WholeTensors tensors) {
  if (problem.is_scaled()) return {problem, std::make_unique<QuantizedTensors>(problem, std::move(tensors))};
  return {problem, std::make_unique<harness::WholeTensors>(std::move(tensors))};
}

}  // namespace

harness::Problem gather_problem(const MlpSizes& whole, const MlpTypes& types, int num_ranks) {
  return problem_of({whole.tokens, whole.hidden}, whole.intermediate, 2, types, num_ranks);
}

harness::Problem scatter_problem(const MlpSizes& whole, const MlpTypes& types, int num_ranks) {
  const bool is_by_blocks = types.scales == harness::Scales::kBlock;
  harness::Problem problem = problem_of({whole.tokens, whole.intermediate}, whole.hidden, 1,
                                        is_by_blocks ? MlpTypes{} : types, num_ranks);
  problem.op = harness::Op::kMatmulReduceScatter;
  return problem;
}

MlpWeights::MlpWeights(const MlpSizes& whole, const MlpTypes& types, int own_rank, int num_ranks)
    : sizes(whole), rank(own_rank), world(num_ranks) {
  const Dims projection{sizes.intermediate, sizes.hidden};
  const Shard inner = shard_of(sizes.intermediate, world, rank);
  x = generated(kSeedX, {sizes.tokens, sizes.hidden}, {0, {0, sizes.tokens}}, 1.0F);
  gate = generated(kSeedGate, projection, {0, inner}, weight_scale(sizes.hidden));
  up = generated(kSeedUp, projection, {0, inner}, weight_scale(sizes.hidden));
  down =
      generated(kSeedDown, {sizes.hidden, sizes.intermediate}, {1, inner}, weight_scale(sizes.intermediate));

  const MlpSizes own{sizes.tokens, sizes.hidden, inner.size};
  harness::WholeTensors projections;
  projections.a = x.view();
  projections.b = {gate.view().movedim(1, 0), up.view().movedim(1, 0)};
  gather = factors_of(gather_problem(own, types, 1), std::move(projections));
  harness::Problem product = scatter_problem({0, own.hidden, own.intermediate}, types, 1);
  product.op = harness::Op::kAllGatherMatmul;  // nothing is summed over ranks within one
  harness::WholeTensors projection_back;
  projection_back.a = TensorView::contiguous(nullptr, product.a, DType::kBF16);
  projection_back.b = {down.view().movedim(1, 0)};
  scatter = factors_of(product, std::move(projection_back));
}

Mlp::Mlp(const MlpWeights& weights, const Session& session)
    : sizes_(weights.sizes),
      session_(session),
      stopwatch_(session.device(), session.group(), session.stream()),
      gather_(weights.gather.problem, *weights.gather.source, 0, {session.device()}),
      scatter_(weights.scatter.problem, *weights.scatter.source, 0, {session.device()}) {
  Device& device = session.device();
  for (MlpOutputs* out : {&out_, &unchecked_}) allocate(*out);
  if (scatter_.problem().scales == harness::Scales::kRow)
    unrounded_ = take(device.allocate_tensor(out_.gate.view().sizes, DType::kBF16));
  unscattered_ = take(device.allocate_tensor({sizes_.tokens, sizes_.hidden}, DType::kBF16));
  for (auto& mark : marks_) mark = take(device.create_event());
  take(prepare_activation(device));
  // A card and its links that have been idle are slower than they are in a model that runs.
  constexpr int kPassesBefore = 2;
  stopwatch_.load_before([this] { enqueue(kSerialMlp, unchecked_); }, kPassesBefore);
  // Loads them: while another rank's kernels wait for this one, that could wait for those.
  enqueue_products();
  session.finish();
}

void Mlp::allocate(MlpOutputs& out) {
  Device& device = session_.device();
  const harness::Problem& product = scatter_.problem();
  const Dims inner{sizes_.tokens, product.k()};
  out.gate = harness::GuardedTensor(device, inner, DType::kBF16);
  out.up = harness::GuardedTensor(device, inner, DType::kBF16);
  out.activated = harness::GuardedTensor(device, inner, product.dtype);
  const Shard mine = shard_of(sizes_.tokens, session_.size(), session_.rank());
  out.y = harness::GuardedTensor(device, {mine.size, sizes_.hidden}, DType::kBF16);
  if (!product.is_scaled()) return;
  const bool is_one = product.scales == harness::Scales::kTensor;
  out.scale = harness::GuardedTensor(device, is_one ? Dims{1} : Dims{sizes_.tokens, 1}, DType::kF32);
  if (is_one) out.scale.fill([](std::int64_t) { return kActivationScale; });
}

double Mlp::slack_of_result(std::size_t i) const {
  constexpr std::size_t kY = 2;
  // An element of x or of an activation is at most about 1/2 on the average, one of a weight as generated.
  const auto sum_slack = [](const harness::Problem& problem, std::int64_t k) {
    const bool is_short = problem.is_scaled() && problem.by_tensor_cores;
    return is_short ? 2 * harness::kTensorCoreRoundoff * 0.75 * std::sqrt(static_cast<double>(k)) : 0;
  };
  const double of_gate = sum_slack(gather_.problem(), sizes_.hidden);
  if (i != kY) return of_gate;
  // y has a standard deviation of about 1. Its parts, each rounded to bf16, may be off by 2 u of themselves,
  // and so may the activations it is summed from, in their type; six times that. Activations follow gate and
  // up, and weights have a size of up to 2 standard deviations.
  return 6 * 2 *
             (harness::unit_roundoff(DType::kBF16) + harness::unit_roundoff(scatter_.problem().dtype) +
              of_gate) +
         sum_slack(scatter_.problem(), sizes_.intermediate);
}

std::vector<const harness::GuardedTensor*> Mlp::written() const {
  std::vector<const harness::GuardedTensor*> tensors{&out_.gate, &out_.up, &out_.activated, &out_.y};
  if (scatter_.problem().scales == harness::Scales::kRow) tensors.push_back(&out_.scale);
  return tensors;
}

const MlpOutputs& Mlp::download() const {
  for (const harness::GuardedTensor* tensor : written()) tensor->download();
  return out_;
}

MlpTimes Mlp::forward(const MlpAlgorithms& by) {
  for (const harness::GuardedTensor* tensor : written()) tensor->poison();
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
  take(stream.record(*marks_[kGatherGateUp]));
  gather_report_ = enqueue_gather(by.gather, out);
  take(stream.record(*marks_[kActivation]));
  enqueue_activation(out);
  take(stream.record(*marks_[kDownScatter]));
  scatter_report_ = enqueue_scatter(by.scatter, out);
  take(stream.record(*marks_[kWholeMlp]));
}

OpReport Mlp::enqueue_gather(Algorithm algorithm, const MlpOutputs& out) {
  const Shard mine = shard_of(sizes_.tokens, session_.size(), session_.rank());
  const std::array<TensorView, 2> projected{out.gate.view(), out.up.view()};
  const auto enqueue = [&](auto args) {
    args.a = args.a.narrow(0, mine.offset, mine.size);
    if constexpr (requires { args.a_scale; }) {
      if (gather_.problem().scales != harness::Scales::kTensor)
        args.a_scale = args.a_scale->narrow(0, mine.offset, mine.size);
    }
    args.out = projected;
    args.algorithm = algorithm;
    args.plan_n = 2 * shard_stride(sizes_.intermediate, session_.size());
    return take(run(args, session_.group(), session_.stream()));
  };
  return gather_.problem().is_scaled() ? enqueue(gather_.scaled_gather_args())
                                       : enqueue(gather_.gather_args());
}

void Mlp::enqueue_activation(const MlpOutputs& out) {
  Stream& stream = session_.stream();
  Activation activation{out.gate.view(), out.up.view(), out.activated.view()};
  if (scatter_.problem().scales == harness::Scales::kTensor) activation.scale = kActivationScale;
  if (scatter_.problem().scales == harness::Scales::kRow) activation.activated = unrounded_.view();
  take(cli::enqueue_activation(activation, stream));
  if (scatter_.problem().scales != harness::Scales::kRow) return;
  take(gemm::quantize_rows({unrounded_.view(), out.activated.view(), out.scale.view()}, stream));
}

OpReport Mlp::enqueue_scatter(Algorithm algorithm, const MlpOutputs& out) {
  const auto enqueue = [&](auto args) {
    args.a = out.activated.view();
    if constexpr (requires { args.a_scale; }) args.a_scale = out.scale.view();
    args.out = out.y.view();
    args.algorithm = algorithm;
    args.plan_k = shard_stride(sizes_.intermediate, session_.size());
    return take(run(args, session_.group(), session_.stream()));
  };
  return scatter_.problem().is_scaled() ? enqueue(scatter_.scaled_scatter_args())
                                        : enqueue(scatter_.scatter_args());
}

void Mlp::enqueue_products() {
  Stream& stream = session_.stream();
  const MlpOutputs& out = unchecked_;
  harness::OperandProduct projection{.a = gather_.a().view()};
  if (gather_.problem().is_scaled()) projection.a_scale = gather_.a_scale();
  take(stream.record(*marks_[kGatherGateUp]));
  for (const harness::GuardedTensor* projected : {&out.gate, &out.up}) {
    projection.out = projected->view();
    take(gather_.multiply(projection, stream));
    ++projection.i;
  }
  take(stream.record(*marks_[kActivation]));
  enqueue_activation(out);
  take(stream.record(*marks_[kDownScatter]));
  take(scatter_.multiply({.a = out.activated.view(), .a_scale = out.scale.view(), .out = unscattered_.view()},
                         stream));
  take(stream.record(*marks_[kWholeMlp]));
}

}  // namespace tandem::cli
