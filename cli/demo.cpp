#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <tandem/base/time_text.hpp>
#include <tandem/gemm/mm.hpp>

#include "command.hpp"
#include "failure.hpp"
#include "mlp.hpp"
#include "operands.hpp"
#include "problem.hpp"
#include "timing.hpp"

namespace tandem::cli {
namespace {

constexpr const char* kPlanKey = "demo/plan";
constexpr const char* kPartsKey = "demo/parts";

struct Preset {
  const char* name;
  const char* title;
  MlpSizes sizes;
};
constexpr Preset kPresets[] = {{"llama3-8b", "Llama 3 8B", {4096, 4096, 14336}},
                               {"llama3-70b", "Llama 3 70B", {4096, 8192, 28672}}};

const Preset& find_preset(const std::string& name) {
  for (const Preset& preset : kPresets) {
    if (name == preset.name) return preset;
  }
  bad_input(fmt::format("--preset '{}': need llama3-8b or llama3-70b", name));
}

MlpSizes scaled(const MlpSizes& sizes, double scale) {
  const auto shrink = [&](std::int64_t size) {
    return std::max<std::int64_t>(1, std::llround(static_cast<double>(size) * scale));
  };
  return {shrink(sizes.tokens), shrink(sizes.hidden), shrink(sizes.intermediate)};
}

double flops_of(const MlpSizes& sizes) {
  return 6.0 * static_cast<double>(sizes.tokens) * static_cast<double>(sizes.hidden) *
         static_cast<double>(sizes.intermediate);
}

// bf16 flop/s of one stream's products here.
double measure_speed(const Config& config) {
  constexpr std::int64_t kSize = 384;
  const auto device = take(open_device({DeviceKind::kCpu, 0}, config));
  const auto stream = take(device->create_stream());
  const Tensor a = take(device->allocate_tensor({kSize, kSize}, DType::kBF16));
  const Tensor b = take(device->allocate_tensor({kSize, kSize}, DType::kBF16));
  const Tensor out = take(device->allocate_tensor({kSize, kSize}, DType::kBF16));
  double best_us = 0;
  for (int round = 0; round < 4; ++round) {
    const double start = now_us();
    take(gemm::mm({a.view(), b.view(), out.view(), std::nullopt, false}, *stream));
    take(stream->synchronize());
    const double us = now_us() - start;
    if (round > 0) best_us = best_us == 0 ? us : std::min(best_us, us);
  }
  return 2.0 * kSize * kSize * kSize / best_us * 1e6;
}

/// What the launcher decides and the ranks follow.
struct DemoPlan {
  MlpSizes sizes;
  double seconds = 15;
  std::string scale;
  std::string why;
};

struct DemoFlags {
  std::string preset = "llama3-8b";
  std::string scale;
  double seconds = 15;
  int link_delay_us = -1;
  JobFlags job;
};

/// One table: both algorithms with or without a simulated link.
struct Phase {
  const char* name;
  std::int64_t link_delay_us;
};

/// The two algorithms that a phase compares.
constexpr Algorithm kCompared[] = {Algorithm::kSerial, Algorithm::kPipelined};

/// One rank's demo: all phases on the same weights, every run compared with the first serial one.
class DemoRank {
 public:
  DemoRank(const DemoPlan& plan, const RankContext& context, const Config& config);
  nlohmann::json run(int link_delay_us);

 private:
  nlohmann::json run_phase(const Phase& phase);
  MlpTimes run_once(Mlp& mlp, Algorithm algorithm, const Phase& phase);
  /// Samples against f64; what is right becomes the bits that every later run must have.
  void accept_first(const Mlp& mlp, const Session& session);
  void compare_bits(const Mlp& mlp, Algorithm algorithm, const Phase& phase);
  void say(const std::string& text) const;

  DemoPlan plan_;
  const RankContext& context_;
  Config config_;
  MlpWeights weights_;
  std::vector<std::vector<std::byte>> first_bits_;
  Wrong wrong_;
  double worst_error_ = 0;
  std::int64_t num_compared_ = 0;
  double serial_gather_us_ = 0;
};

DemoRank::DemoRank(const DemoPlan& plan, const RankContext& context, const Config& config)
    : plan_(plan), context_(context), config_(config), weights_(plan.sizes, context.rank, context.size) {}

void DemoRank::say(const std::string& text) const {
  if (context_.rank != 0) return;
  fmt::print("  {}\n", text);
  std::fflush(stdout);
}

nlohmann::json DemoRank::run(int link_delay_us) {
  nlohmann::json phases = nlohmann::json::array();
  say("weights made");
  phases.push_back(run_phase({"no link", 0}));
  // By default copying takes as long as 60 % of the product that hides it, where there is no link to show.
  const int peers = std::max(1, context_.size - 1);
  const bool has_link = receive_placement(context_).kind == DeviceKind::kCuda;
  const double hidden_us = has_link ? 0 : std::max(200.0, 0.6 * serial_gather_us_ / peers);
  const auto delay = link_delay_us >= 0 ? link_delay_us : std::llround(hidden_us / 100) * 100;
  if (delay > 0 && context_.size > 1) phases.push_back(run_phase({"simulated link", delay}));
  return {{"phases", phases},
          {"wrong", wrong_.count},
          {"first_wrong", wrong_.first},
          {"worst_error", worst_error_},
          {"num_compared", num_compared_}};
}

nlohmann::json DemoRank::run_phase(const Phase& phase) {
  Config config = config_;
  config.link_delay = std::chrono::microseconds(phase.link_delay_us);
  const Session session(context_, config, fmt::format("demo {}", phase.name));
  Mlp mlp(weights_, session);
  // The first pass of each is warm-up, and checked like all others.
  run_once(mlp, Algorithm::kSerial, phase);
  if (phase.link_delay_us == 0) accept_first(mlp, session);
  double round_us = run_once(mlp, Algorithm::kSerial, phase)[kWholeMlp];
  round_us += run_once(mlp, Algorithm::kPipelined, phase)[kWholeMlp];
  run_once(mlp, Algorithm::kAuto, phase);
  nlohmann::json result{{"link_delay_us", phase.link_delay_us},
                        {"link", session.placement().link_in_words()},
                        {"auto", nlohmann::json::array()}};
  for (const OpReport& report : {mlp.gather_report(), mlp.scatter_report()}) {
    result["auto"].push_back({{"algorithm", to_string(report.algorithm)}, {"reason", report.reason}});
  }

  const std::vector<double> all = session.exchange(round_us, "demo rounds");
  const double slowest_us = *std::max_element(all.begin(), all.end());
  const auto rounds = static_cast<int>(std::clamp(plan_.seconds / 2 * 1e6 / slowest_us - 2.0, 3.0, 15.0));
  say(fmt::format("{}: {} rounds of serial and overlapped", phase.name, rounds));
  for (int round = 0; round < rounds; ++round) {
    for (int turn = 0; turn < 2; ++turn) {
      const Algorithm algorithm = kCompared[(round + turn) % 2];
      const MlpTimes times = run_once(mlp, algorithm, phase);
      for (std::size_t step = 0; step < times.size(); ++step) {
        result["times"][std::string(to_string(algorithm))][step].push_back(times[step]);
      }
    }
  }
  if (phase.link_delay_us == 0) {
    const double own = median(result["times"]["serial"][kGatherGateUp].get<std::vector<double>>());
    serial_gather_us_ = session.exchange(own, "demo link")[0];
  }
  return result;
}

MlpTimes DemoRank::run_once(Mlp& mlp, Algorithm algorithm, const Phase& phase) {
  const MlpTimes times = mlp.forward(algorithm);
  if (!first_bits_.empty()) compare_bits(mlp, algorithm, phase);
  return times;
}

void DemoRank::accept_first(const Mlp& mlp, const Session& session) {
  const SharedBytes shared = SharedBytes::open(*context_.store, kPartsKey);
  const MlpReference reference(weights_, session, shared);
  worst_error_ = reference.compare(mlp.y(), wrong_);
  say("samples of the outputs compared with float64");
  for (const GuardedTensor* tensor : mlp.results()) {
    const auto* begin = tensor->host().data_as<const std::byte>();
    first_bits_.emplace_back(begin, begin + tensor->host().size_bytes());
  }
}

void DemoRank::compare_bits(const Mlp& mlp, Algorithm algorithm, const Phase& phase) {
  constexpr const char* kNames[] = {"gate", "up", "y"};
  for (std::size_t i = 0; i < first_bits_.size(); ++i) {
    const GuardedTensor& tensor = *mlp.results()[i];
    num_compared_ += tensor.view().numel();
    if (!tensor.guards_intact()) wrong_.add(fmt::format("bytes beside {} were overwritten", kNames[i]));
    const std::string what = fmt::format("{} on rank {} in the first serial run and in a {} run ({})",
                                         kNames[i], context_.rank, to_string(algorithm), phase.name);
    compare_runs({.first = first_bits_[i],
                  .second = tensor.host(),
                  .k = mlp.slack_k(),
                  .same_bits = mlp.has_same_bits(),
                  .slack = Mlp::slack_of_result(i)},
                 what, wrong_);
  }
}

class DemoCommand : public Command {
 public:
  void define(CLI::App& app) override;
  int launch(const Invocation& invocation) override;
  nlohmann::json run_rank(const RankContext& context, const Config& config) override;

 private:
  [[nodiscard]] DemoPlan plan(const Invocation& invocation, const JobPlace& place) const;
  void print_phase(const std::vector<nlohmann::json>& results, std::size_t idx) const;
  static void conclude(const std::vector<nlohmann::json>& results, std::int64_t num_samples,
                       const Placement& placement);
  DemoFlags flags_;
};

void DemoCommand::define(CLI::App& app) {
  app.add_option("--preset", flags_.preset, "llama3-8b or llama3-70b")->capture_default_str();
  app.add_option("--scale", flags_.scale,
                 "shrinks every dimension, such as 1/4; default: what fits --seconds");
  app.add_option("--seconds", flags_.seconds, "about how long to measure")->capture_default_str();
  app.add_option("--link-delay-us", flags_.link_delay_us,
                 "simulated link: each copy from a peer takes so long first; 0 leaves that table out");
  flags_.job.define(app);
}

DemoPlan DemoCommand::plan(const Invocation& invocation, const JobPlace& place) const {
  const Preset& preset = find_preset(flags_.preset);
  DemoPlan plan;
  plan.seconds = flags_.seconds;
  if (!flags_.scale.empty()) {
    plan.scale = flags_.scale;
    plan.sizes = scaled(preset.sizes, parse_scale(flags_.scale));
    plan.why = "asked for";
    return plan;
  }
  if (place.placement.kind == DeviceKind::kCuda) {
    plan.scale = "1";
    plan.sizes = preset.sizes;
    plan.why = "GPUs take it whole";
    return plan;
  }
  const int cores = std::min(place.ranks, invocation.machine.usable_cores());
  const double speed = measure_speed(invocation.config) * cores;
  for (const char* scale : {"1", "1/2", "1/4", "1/8", "1/16", "1/32"}) {
    plan.scale = scale;
    plan.sizes = scaled(preset.sizes, parse_scale(scale));
    // Both phases: three passes to warm up and at least three rounds of two; the rest is making and checking.
    constexpr int kFewestPasses = 2 * (4 + 3 * 2);
    const double bytes = 6.0 * static_cast<double>(plan.sizes.hidden * plan.sizes.intermediate) +
                         8.0 * static_cast<double>(plan.sizes.tokens * plan.sizes.intermediate);
    if (kFewestPasses * flops_of(plan.sizes) / speed <= flags_.seconds &&
        bytes < 0.25 * static_cast<double>(invocation.machine.memory_bytes)) {
      break;
    }
  }
  plan.why = fmt::format("the largest that fits {:.0f} s at {:.0f} GFLOP/s on {} core{}", flags_.seconds,
                         speed * 1e-9, cores, cores == 1 ? "" : "s");
  return plan;
}

int DemoCommand::launch(const Invocation& invocation) {
  const JobPlace place = flags_.job.choose(invocation.machine);
  const int ranks = place.ranks;
  if (!(flags_.seconds > 0 && flags_.seconds <= 3600)) {
    bad_input(fmt::format("--seconds {}: need a number above 0 and up to 3600", flags_.seconds));
  }
  if (flags_.link_delay_us < -1 || flags_.link_delay_us > 1'000'000) {
    bad_input(fmt::format("--link-delay-us {}: need 0 to 1000000", flags_.link_delay_us));
  }
  const Preset& preset = find_preset(flags_.preset);
  const DemoPlan plan = this->plan(invocation, place);
  const MlpSizes& sizes = plan.sizes;
  fmt::print("{}\n", place.heading);
  fmt::print("{} MLP at scale {} ({}): {} tokens, hidden {}, intermediate {}, bf16, {:.1f} GFLOP a pass\n",
             preset.title, plan.scale, plan.why, sizes.tokens, sizes.hidden, sizes.intermediate,
             flops_of(sizes) * 1e-9);
  fmt::print("x is split by tokens; all-gather + gate and up -> silu(gate) * up -> down + reduce-scatter\n");
  std::fflush(stdout);

  const SharedBytes parts(MlpReference::bytes_needed(sizes, ranks));
  const auto prepare = [&](Store& store) {
    send_to_ranks(store, kPlanKey,
                  {{"sizes", {sizes.tokens, sizes.hidden, sizes.intermediate}}, {"seconds", plan.seconds}});
    parts.publish(store, kPartsKey);
  };
  const auto results =
      run_job({ranks, invocation.arguments, place.placement, prepare}, invocation.interrupts);
  for (std::size_t i = 0; i < results[0].at("phases").size(); ++i) print_phase(results, i);
  conclude(results, MlpReference::num_samples(sizes, ranks), place.placement);
  return kOk;
}

void DemoCommand::print_phase(const std::vector<nlohmann::json>& results, std::size_t idx) const {
  const auto& phase = results[0].at("phases")[idx];
  const auto delay_us = phase.at("link_delay_us").get<std::int64_t>();
  const auto& picks = phase.at("auto");
  const auto pick = [&](int step) -> std::string {
    if (step != kGatherGateUp && step != kDownScatter) return "";
    const auto& report = picks[step == kGatherGateUp ? 0 : 1];
    return fmt::format("{} ({})", report.at("algorithm").get<std::string>(),
                       report.at("reason").get<std::string>());
  };
  constexpr const char* kSteps[] = {"all-gather + gate, up", "silu(gate) * up", "down + reduce-scatter",
                                    "whole MLP"};
  fmt::print("\n{}\n", delay_us == 0 ? phase.at("link").get<std::string>()
                                     : fmt::format("simulated link: {} before each copy from a peer",
                                                   time_text(static_cast<double>(delay_us))));
  fmt::print("  {:<22} {:>10} {:>14} {:>8}  {}\n", "step", "serial", "overlapped", "speedup", "auto picks");
  for (int step = 0; step < kNumMlpSteps; ++step) {
    const auto typical = [&](const char* algorithm) {
      return median(slowest_rank(results, fmt::format("/phases/{}/times/{}/{}", idx, algorithm, step)));
    };
    const double serial = typical("serial");
    const double overlapped = typical("pipelined");
    fmt::print("  {:<22} {:>10} {:>14} {:>7.2f}x  {}\n", kSteps[step], time_text(serial),
               time_text(overlapped), serial / overlapped, pick(step));
  }
}

void DemoCommand::conclude(const std::vector<nlohmann::json>& results, std::int64_t num_samples,
                           const Placement& placement) {
  std::int64_t wrong = 0;
  std::int64_t compared = 0;
  double worst = 0;
  std::string first;
  for (const auto& result : results) {
    wrong += result.at("wrong").get<std::int64_t>();
    compared += result.at("num_compared").get<std::int64_t>();
    worst = std::max(worst, result.at("worst_error").get<double>());
    if (first.empty()) first = result.at("first_wrong").get<std::string>();
  }
  if (wrong > 0) {
    throw Failure(kFailed, Error(ErrorCode::kNumeric,
                                 fmt::format("demo: wrong result: {} values; the first: {}", wrong, first)));
  }
  fmt::print(
      "\nchecked: {} sampled outputs against float64 (largest error {:.0f} % of its bound); {} values of "
      "all\n"
      "runs, overlapped and serial, {}\n",
      num_samples, 100 * worst, compared,
      placement.has_same_bits()
          ? "bit by bit against the first serial run: all equal"
          : "against the first serial run: none farther off than sums in another order are");
  if (placement.kind != DeviceKind::kCpu) return;
  fmt::print(
      "On CPU ranks a copy is work for the cores that also multiply, so without a link there is nothing to "
      "hide;\n"
      "the simulated link waits without using a core, as a wire does, and the overlapped run hides that "
      "wait.\n");
}

nlohmann::json DemoCommand::run_rank(const RankContext& context, const Config& config) {
  const nlohmann::json told = receive(context, kPlanKey);
  DemoPlan plan;
  plan.sizes = {told.at("sizes")[0], told.at("sizes")[1], told.at("sizes")[2]};
  plan.seconds = told.at("seconds");
  DemoRank demo(plan, context, config);
  return demo.run(flags_.link_delay_us);
}

}  // namespace

std::unique_ptr<Command> make_demo() {
  return std::make_unique<DemoCommand>();
}

}  // namespace tandem::cli
