#include <algorithm>
#include <tandem/fused/forecast.hpp>
#include <utility>

#include "base/format.hpp"
#include "base/try.hpp"
#include "coll/gpu_models.hpp"
#include "cost/machine_rates.hpp"
#include "cost/products.hpp"
#include "fused/call/choose.hpp"
#include "fused/gather/algorithms.hpp"
#include "fused/gather/workload.hpp"
#include "fused/scatter/algorithms.hpp"
#include "fused/scatter/pushed.hpp"
#include "fused/scatter/workload.hpp"
#include "gemm/planned_products.hpp"

namespace tandem {
namespace {

/// A GPU that is described, and not there. It has products and collectives that are predicted.
class DescribedGpu final : public Device {
 public:
  DescribedGpu(std::string name, int multiprocessors)
      : Device({DeviceKind::kCuda, 0}, Config{}), name_(std::move(name)) {
    attach<gemm::Backend>(gemm::planned_products(multiprocessors));
    attach<coll::Backend>(coll::planned_collectives());
  }
  [[nodiscard]] std::string description() const override { return name_; }
  [[nodiscard]] bool is_host_accessible() const override { return false; }
  [[nodiscard]] Result<std::unique_ptr<Stream>> create_stream(int) override { return not_there(); }
  [[nodiscard]] Result<std::unique_ptr<Event>> create_event() override { return not_there(); }

 protected:
  Result<Buffer> do_allocate(std::int64_t) override { return not_there(); }
  Result<void> do_zero(void*, std::int64_t) override { return not_there(); }
  Result<void> do_copy_from_host(const void*, const TensorView&) override { return not_there(); }
  Result<void> do_copy_to_host(const TensorView&, void*) override { return not_there(); }

 private:
  [[nodiscard]] tl::unexpected<Error> not_there() const {
    return failf(ErrorCode::kUnsupported, "{}: this GPU is planned with, and not there", name_);
  }
  std::string name_;
};

constexpr std::int64_t kMostSize = std::int64_t{1} << 24;
constexpr int kMostRanks = 1024;

Result<void> check(const ForecastProblem& problem) {
  const auto& [least, most] = std::minmax({problem.m, problem.n, problem.k});
  if (least < 1 || most > kMostSize) {
    return failf(ErrorCode::kInvalidArgument, "a product of {}x{}x{}: each size needs to be from 1 to {}",
                 problem.m, problem.n, problem.k, kMostSize);
  }
  if (problem.world < 2 || problem.world > kMostRanks)
    return failf(ErrorCode::kInvalidArgument, "{} ranks: need 2 to {}", problem.world, kMostRanks);
  const bool is_scaled = problem.scales != ScaleMode::kNone;
  if (is_scaled != is_f8(problem.dtype)) {
    return failf(ErrorCode::kInvalidArgument, "{} factors with scales {}: f8 has scales, and nothing else",
                 to_string(problem.dtype), to_string(problem.scales));
  }
  if (is_scaled && problem.scales != ScaleMode::kTensorwise && problem.scales != ScaleMode::kRowwiseSharded)
    return failf(ErrorCode::kUnsupported,
                 "scales {}: nobody has measured their products; ask for tensorwise or rowwise_sharded",
                 to_string(problem.scales));
  const bool is_known = problem.dtype == DType::kBF16 || problem.dtype == DType::kF16 ||
                        problem.dtype == DType::kF32 || problem.dtype == DType::kF8E4M3;
  if (!is_known)
    return failf(ErrorCode::kUnsupported, "{}: no model; ask for bf16, f16, f32 or f8e4m3",
                 to_string(problem.dtype));
  return {};
}

fused::GatherProblem gather_of(const ForecastProblem& problem, DeviceId device) {
  return {.dtype = problem.dtype,
          .sizes = {problem.m, problem.k},
          .world = problem.world,
          .is_scaled = problem.scales != ScaleMode::kNone,
          .scale_mode = problem.scales,
          .fast_accum = problem.fast_accum,
          .plan_n = problem.n,
          .is_capturing = problem.is_recorded,
          .device = device,
          .num_b = 1,
          .sum_n = problem.n};
}

fused::ScatterProblem scatter_of(const ForecastProblem& problem, DeviceId device, const cost::GpuRates& gpu) {
  const bool is_scaled = problem.scales != ScaleMode::kNone;
  const DType out = is_scaled ? DType::kBF16 : problem.dtype;
  fused::ScatterProblem scatter{.dtype = out,
                                .partials = out,
                                .sizes = {problem.m, problem.n},
                                .world = problem.world,
                                .gives_all = problem.op == ForecastOp::kMatmulAllReduce,
                                .is_scaled = is_scaled,
                                .a_scale = !is_scaled                                 ? gemm::Scale::kNone
                                           : problem.scales == ScaleMode::kTensorwise ? gemm::Scale::kTensor
                                                                                      : gemm::Scale::kRow,
                                .plan_k = problem.k,
                                .device = device,
                                .num_products = 1,
                                .sum_k = problem.k,
                                .fast_accum = problem.fast_accum};
  if (fused::can_push(scatter)) scatter.push_chunks = fused::choose_push_chunks(scatter, problem.link, gpu);
  return scatter;
}

template <class Entry, class Problem>
std::vector<Candidate> candidates_of(std::span<const Entry> algorithms, const Problem& problem,
                                     const Device& device, const std::optional<fused::Prediction>& us) {
  std::vector<Candidate> candidates;
  for (const Entry& one : algorithms)
    candidates.push_back(fused::candidate_of(one, problem, device, us, nullptr));
  return candidates;
}

}  // namespace

struct Forecaster::Impl {
  std::shared_ptr<const DescribedGpu> device;
  cost::GpuRates gpu;
};

Algorithm algorithm_across_hosts(bool has_native) {
  // A product that waits for rows was mostly faster than products of chunks (docs/notebook/hosts.md).
  return has_native ? Algorithm::kNative : Algorithm::kPipelined;
}

const double* Forecast::us_of(Algorithm of) const {
  const auto found = std::find_if(candidates.begin(), candidates.end(),
                                  [&](const Candidate& one) { return one.algorithm == of; });
  return found == candidates.end() || !found->predicted_us ? nullptr : &*found->predicted_us;
}

Result<Forecaster> Forecaster::make(const cost::Machine& machine) {
  TANDEM_ASSIGN(const cost::GpuRates gpu, cost::gpu_rates_of(machine));
  return Forecaster(std::make_shared<const Impl>(
      Impl{std::make_shared<const DescribedGpu>(machine.gpu, gpu.multiprocessors), gpu}));
}

Result<Forecaster> Forecaster::with_rates(const cost::Machine& machine) const {
  TANDEM_ASSIGN(const cost::GpuRates gpu, cost::gpu_rates_of(machine));
  return Forecaster(std::make_shared<const Impl>(Impl{impl_->device, gpu}));
}

Result<Forecast> Forecaster::forecast(const ForecastProblem& problem) const {
  TANDEM_TRY(check(problem));
  const Device& device = *impl_->device;
  const fused::Surroundings around{problem.link, impl_->gpu};
  fused::Workload work;
  std::vector<Candidate> candidates;
  if (problem.op == ForecastOp::kAllGatherMatmul) {
    const fused::GatherProblem gather = gather_of(problem, device.id());
    work = workload_of(gather, device, around);
    candidates = candidates_of(fused::gather_algorithms(), gather, device, predict(work, impl_->gpu));
  } else {
    const fused::ScatterProblem scatter = scatter_of(problem, device.id(), impl_->gpu);
    work = workload_of(scatter, device, around);
    const auto algorithms = scatter.gives_all ? fused::all_reduce_algorithms() : fused::scatter_algorithms();
    candidates = candidates_of(algorithms, scatter, device, predict(work, impl_->gpu));
  }
  Forecast forecast;
  forecast.product_us = work.product_us.value_or(
      work.world * cost::product_us(work.chunk_flops, work.element_bytes, impl_->gpu));
  forecast.collective_us = work.collective_us.value_or(0);
  TANDEM_ASSIGN(fused::Choice choice,
                fused::choose({.who = "forecast", .world = problem.world, .device = device.id()},
                              std::move(candidates)));
  forecast.algorithm = choice.algorithm;
  forecast.reason = std::move(choice.reason);
  forecast.candidates = std::move(choice.candidates);
  return forecast;
}

}  // namespace tandem
