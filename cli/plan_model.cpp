#include "plan_model.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "failure.hpp"

namespace tandem::cli {
namespace {

Forecast forecast_of(const Forecaster& forecaster, const ForecastProblem& problem) {
  auto forecast = forecaster.forecast(problem);
  if (!forecast) throw Failure(exit_code_of(forecast.error()), forecast.error());
  return *std::move(forecast);
}

bool is_gather(const ForecastProblem& problem) {
  return problem.op == ForecastOp::kAllGatherMatmul;
}

double part_bytes(const ForecastProblem& problem) {
  const bool gathers = is_gather(problem);
  const DType moved = gathers || !is_f8(problem.dtype) ? problem.dtype : DType::kBF16;
  const std::int64_t row = (gathers ? problem.k : problem.n) * size_bytes(moved);
  return static_cast<double>((problem.m + problem.world - 1) / problem.world * row);
}

/// What each rank's link between hosts carries in one direction, and the product that is there meanwhile.
struct Outer {
  double us = 0;
  double shown_us = 0;  ///< that no product can hide
};

Outer outer_of(const ForecastProblem& problem, const Hosts& hosts, double product_us) {
  const int ways = problem.op == ForecastOp::kMatmulAllReduce ? 2 : 1;
  const double us = ways * (hosts.count - 1) * (hosts.latency_us + part_bytes(problem) / hosts.bytes_per_us);
  // Rows of this host are multiplied while those of the others come.
  return {.us = us, .shown_us = std::max(0.0, us - product_us / hosts.count)};
}

void fill(PlannedOp& op, const Forecast& forecast, const Outer& outer) {
  op.product_us = forecast.product_us;
  op.collective_us = forecast.collective_us + outer.us;
  const auto with_outer = [&](const double* us) { return *us + outer.shown_us; };
  if (const double* const us = forecast.us_of(Algorithm::kSerial)) op.serial_us = *us + outer.us;
  if (const double* const us = forecast.us_of(Algorithm::kPipelined)) op.pipelined_us = with_outer(us);
  if (const double* const us = forecast.us_of(Algorithm::kNative)) op.native_us = with_outer(us);
}

/// A rank a host: nothing is left to do inside a host. Products that wait for rows are those of gathers.
void fill_alone(PlannedOp& op, double product_us, const Outer& outer) {
  op.product_us = product_us;
  op.collective_us = outer.us;
  op.serial_us = product_us + outer.us;
  op.pipelined_us = product_us + outer.shown_us;
  if (is_gather(op.problem)) op.native_us = op.pipelined_us;
}

/// `algorithm`; serial where it cannot run.
void set_algorithm(PlannedOp& op, Algorithm algorithm) {
  std::optional<double> us;
  if (algorithm == Algorithm::kPipelined) us = op.pipelined_us;
  if (algorithm == Algorithm::kNative) us = op.native_us;
  op.algorithm = us ? algorithm : Algorithm::kSerial;
  op.us = us.value_or(op.serial_us);
}

}  // namespace

double PlannedOp::hidden() const {
  const double beside_us = serial_us - product_us;
  return beside_us <= 0 ? 0 : std::clamp((serial_us - us) / beside_us, 0.0, 1.0);
}

PlannedOp plan_op(const Forecaster& forecaster, const ForecastProblem& problem, const Hosts& hosts,
                  Algorithm asked) {
  PlannedOp op{.problem = problem};
  ForecastProblem inside = problem;
  inside.world = problem.world / hosts.count;
  const bool is_alone = inside.world == 1;
  if (is_alone) inside.world = 2;  // its product is the same
  const Forecast forecast = forecast_of(forecaster, inside);
  const Outer outer = hosts.count == 1 ? Outer() : outer_of(problem, hosts, forecast.product_us);
  if (is_alone) {
    fill_alone(op, forecast.product_us, outer);
  } else {
    fill(op, forecast, outer);
    if (hosts.count > 1 && !is_gather(problem)) op.native_us.reset();
    for (const Candidate& one : forecast.candidates) {
      if (!one.why_not.empty() && op.why_not.empty())
        op.why_not = fmt::format("{}: {}", to_string(one.algorithm), one.why_not);
    }
  }
  if (asked == Algorithm::kAuto)  // as the library chooses
    asked = hosts.count == 1 ? forecast.algorithm : algorithm_across_hosts(op.native_us.has_value());
  set_algorithm(op, asked);
  return op;
}

ModelShape model_of(const std::string& preset) {
  if (preset == "llama3-8b")
    return {.name = preset, .hidden = 4096, .qkv = 6144, .intermediate = 14336, .layers = 32};
  if (preset == "llama3-70b")
    return {.name = preset, .hidden = 8192, .qkv = 10240, .intermediate = 28672, .layers = 80};
  bad_input(fmt::format("--preset '{}': need llama3-8b or llama3-70b", preset));
}

namespace {

/// One of a layer's products, by the rank's sizes: a gather and its columns, or a scatter and its inner size.
struct LayerProduct {
  bool gathers;
  std::int64_t local;
};

class ModelPlanner {
 public:
  ModelPlanner(const Forecaster& forecaster, const ModelRun& run, const ForecastProblem& like,
               const Hosts& hosts, Algorithm asked)
      : forecaster_(forecaster), run_(run), like_(like), hosts_(hosts), asked_(asked) {}

  PlannedModel plan() {
    const std::int64_t world = like_.world;
    const LayerProduct products[] = {{true, run_.shape.qkv / world},
                                     {false, run_.shape.hidden / world},
                                     {true, 2 * run_.shape.intermediate / world},
                                     {false, run_.shape.intermediate / world}};
    for (const LayerProduct& product : products) add(product);
    const auto layers = static_cast<double>(run_.shape.layers);
    planned_.product_us *= layers;
    planned_.serial_us *= layers;
    planned_.us *= layers;
    return std::move(planned_);
  }

 private:
  [[nodiscard]] PlannedOp op_of(bool gathers, std::int64_t local) const {
    ForecastProblem problem = like_;
    problem.op = gathers ? ForecastOp::kAllGatherMatmul : ForecastOp::kMatmulReduceScatter;
    problem.m = run_.tokens;
    problem.n = gathers ? local : run_.shape.hidden;
    problem.k = gathers ? run_.shape.hidden : local;
    const bool overlaps = gathers ? run_.overlaps_gathers : run_.overlaps_scatters;
    return plan_op(forecaster_, problem, hosts_, overlaps ? asked_ : Algorithm::kSerial);
  }

  void count(const PlannedOp& op, int times) {
    planned_.num_ops += times;
    planned_.product_us += times * op.product_us;
    planned_.serial_us += times * op.serial_us;
    planned_.us += times * op.us;
  }

  void add(const LayerProduct& product) {
    const PlannedOp forward = op_of(product.gathers, product.local);
    count(forward, run_.trains && run_.recomputes ? 2 : 1);
    planned_.ops.push_back(forward);
    if (!run_.trains) return;
    // Of the input's gradient: what was gathered is scattered, and the other way round.
    count(op_of(!product.gathers, product.local), 1);
    // Of the weight's gradient: the tokens are the inner size, and nothing travels.
    ForecastProblem weight = like_;
    weight.m = run_.shape.hidden;
    weight.n = product.local;
    weight.k = run_.tokens;
    weight.world = 2;
    const double us = forecast_of(forecaster_, weight).product_us;
    planned_.product_us += us;
    planned_.serial_us += us;
    planned_.us += us;
  }

  const Forecaster& forecaster_;
  const ModelRun& run_;
  const ForecastProblem& like_;
  const Hosts& hosts_;
  Algorithm asked_;
  PlannedModel planned_;
};

}  // namespace

PlannedModel plan_model(const Forecaster& forecaster, const ModelRun& run, const ForecastProblem& like,
                        const Hosts& hosts, Algorithm asked) {
  for (const std::int64_t size : {run.shape.qkv, run.shape.hidden, run.shape.intermediate}) {
    if (size % like.world != 0)
      bad_input(fmt::format("--ranks {}: {} has a size of {}, which they do not divide: take a power of two",
                            like.world, run.shape.name, size));
  }
  return ModelPlanner(forecaster, run, like, hosts, asked).plan();
}

}  // namespace tandem::cli
