#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tandem/base/time_text.hpp>

#include "bench_row.hpp"
#include "command.hpp"
#include "demo_rank.hpp"
#include "failure.hpp"
#include "harness/problem.hpp"
#include "harness/stopwatch.hpp"
#include "memory_need.hpp"
#include "mlp.hpp"
#include "row_file.hpp"
#include "timing.hpp"
#include "version.hpp"

namespace tandem::cli {
namespace {

constexpr const char* kPlanKey = "demo/plan";

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

// flop/s of one stream's products of these types here.
double measure_speed(const Config& config, const MlpTypes& types) {
  constexpr std::int64_t kSize = 384;
  const auto device = take(open_device({DeviceKind::kCpu, 0}, config));
  const auto stream = take(device->create_stream());
  const harness::Problem problem = gather_problem({kSize, kSize, kSize}, types, 1);
  const harness::RankOperands operands(problem, harness::GeneratedTensors(problem), 0, {*device});
  const Tensor out = take(device->allocate_tensor({kSize, kSize}, DType::kBF16));
  harness::OperandProduct product{.a = operands.a().view(), .out = out.view()};
  if (problem.is_scaled()) product.a_scale = operands.a_scale();
  double best_us = 0;
  for (int round = 0; round < 4; ++round) {
    const double start = harness::now_us();
    take(operands.multiply(product, *stream));
    take(stream->synchronize());
    const double us = harness::now_us() - start;
    if (round > 0) best_us = best_us == 0 ? us : std::min(best_us, us);
  }
  return 2.0 * kSize * kSize * kSize / best_us * 1e6;
}

struct DemoFlags {
  std::string preset = "llama3-8b";
  std::string dtype = "bf16";
  std::string scales;
  bool fast_accum = false;
  std::string scale;
  double seconds = 20;
  int slices = 0;
  int link_delay_us = -1;
  std::string json;
  JobFlags job;
};

constexpr const char* kSteps[] = {"all-gather + gate, up", "silu(gate) * up", "down + reduce-scatter",
                                  "whole MLP"};

MlpTypes types_of(const DemoFlags& flags) {
  MlpTypes types{.dtype = harness::parse_product_dtype(flags.dtype), .fast_accum = flags.fast_accum};
  if (types.dtype != DType::kBF16 && types.dtype != DType::kF8E4M3)
    bad_input(fmt::format("demo --dtype {}: need bf16 or f8e4m3", flags.dtype));
  if (!flags.scales.empty()) types.scales = harness::parse_scales(flags.scales);
  return types;
}

/// "bf16", "f8e4m3 with fast sums".
std::string type_in_words(const MlpTypes& types) {
  return fmt::format("{}{}", to_string(types.dtype), types.fast_accum ? " with fast sums" : "");
}

const char* scales_in_words(harness::Scales scales) {
  switch (scales) {
    case harness::Scales::kTensor:
      return "scales: one for x, for silu(gate) * up, where it is fixed beforehand, and for each weight";
    case harness::Scales::kRow:
      return "scales: one for each row of x and of silu(gate) * up, and for each output of the weights";
    case harness::Scales::kBlock:
      return "scales along k: x in 1 x 128, gate and up in 128 x 128; down is bf16, because a scatter cuts k "
             "and\nthere is none with scales along it";
    case harness::Scales::kNone:
      break;
  }
  return "";
}

/// "native", or "pipelined; auto stays serial: predicted ...".
std::string overlap_in_words(const nlohmann::json& op) {
  const auto by = op.at("overlapped_by").get<std::string>();
  const auto chosen = op.at("auto").get<std::string>();
  const auto reason = op.at("reason").get<std::string>();
  return by == chosen ? fmt::format("{} (auto: {})", by, reason)
                      : fmt::format("{} (auto stays {}: {})", by, chosen, reason);
}

nlohmann::json row_of_phase(const nlohmann::json& phase, const DemoTimes& times) {
  nlohmann::json row;
  for (const char* key : {"link_delay_us", "hosts", "transport", "ops"}) row[key] = phase.at(key);
  for (int step = 0; step < kNumMlpSteps; ++step) {
    nlohmann::json figures{{"t_serial_us", times.serial_us(step)},
                           {"t_overlapped_us", times.overlapped_us(step)},
                           {"t_products_us", times.products_us(step)},
                           {"speedup", times.speedup(step)},
                           {"hidden", nullptr}};
    if (const auto hidden = times.hidden(step)) figures["hidden"] = *hidden;
    row["steps"][kSteps[step]] = figures;
  }
  return row;
}

/// Each rank has all of x. Weights are there as they were made and as they are multiplied.
std::int64_t bytes_needed(const DemoPlan& plan, int ranks) {
  const MlpSizes& sizes = plan.sizes;
  const harness::Problem gather = gather_problem(sizes, plan.types, ranks);
  const harness::Problem scatter = scatter_problem(sizes, plan.types, ranks);
  return sum_of_bytes({times_bytes(ranks, bytes_of(gather.a, DType::kBF16)),
                       times_bytes(3, bytes_of({sizes.hidden, sizes.intermediate}, DType::kBF16)),
                       bytes_of_ranks(gather), bytes_of_ranks(scatter),
                       MlpReference::bytes_needed(sizes, ranks)});
}

class DemoCommand : public Command {
 public:
  void define(CLI::App& app) override;
  int launch(const Invocation& invocation) override;
  nlohmann::json run_rank(const RankContext& context, const Config& config) override;

 private:
  /// Throws exit 2 for values that make no sense.
  void check_flags(const Preset& preset, int ranks) const;
  [[nodiscard]] DemoPlan plan(const Invocation& invocation, const JobPlace& place) const;
  static void print_heading(const Preset& preset, const DemoPlan& plan, const JobPlace& place);
  void print_phase(const nlohmann::json& phase, const DemoTimes& times) const;
  static void conclude(const std::vector<nlohmann::json>& results, std::int64_t num_samples,
                       const Placement& placement);
  DemoFlags flags_;
};

void DemoCommand::define(CLI::App& app) {
  app.add_option("--preset", flags_.preset, "llama3-8b or llama3-70b")->capture_default_str();
  app.add_option("--dtype", flags_.dtype, "of what is multiplied: bf16 or f8e4m3")->capture_default_str();
  app.add_option("--scales", flags_.scales,
                 "of f8 operands: tensor, row or block (128 of k; down stays bf16)");
  app.add_flag("--fast-accum", flags_.fast_accum, "of f8 operands: sums over all of k in the tensor cores");
  app.add_option("--scale", flags_.scale,
                 "shrinks every dimension, such as 1/4; default: what fits --seconds");
  app.add_option("--slices", flags_.slices,
                 "each rank has one of so many slices of the layer; default: one a rank, on GPUs at least 8");
  app.add_option("--seconds", flags_.seconds, "about how long to measure")->capture_default_str();
  app.add_option("--json", flags_.json, "append a JSON row per table to this file")->type_name("FILE");
  app.add_option("--link-delay-us", flags_.link_delay_us,
                 "simulated link: each copy from a peer takes so long first; 0 leaves that table out");
  flags_.job.define(app);
}

DemoPlan DemoCommand::plan(const Invocation& invocation, const JobPlace& place) const {
  const Preset& preset = find_preset(flags_.preset);
  const bool on_gpus = place.placement.kind == DeviceKind::kCuda;
  DemoPlan plan;
  plan.types = types_of(flags_);
  plan.seconds = flags_.seconds;
  // Models of this size are cut for 8 GPUs. On fewer, larger slices would show products and little of what
  // joins them.
  constexpr int kSlicesOfGpus = 8;
  plan.slices = flags_.slices > 0 ? flags_.slices
                : on_gpus         ? std::max(place.ranks, kSlicesOfGpus)
                                  : place.ranks;
  MlpSizes whole = preset.sizes;
  whole.intermediate = std::max<std::int64_t>(1, whole.intermediate * place.ranks / plan.slices);
  const auto shrink_to = [&](const std::string& scale) {
    plan.scale = scale;
    plan.sizes = scaled(whole, parse_scale(scale));
  };
  if (!flags_.scale.empty()) {
    shrink_to(flags_.scale);
    plan.why = "asked for";
    return plan;
  }
  if (on_gpus) {
    shrink_to("1");
    plan.why = "GPUs take it whole";
    return plan;
  }
  const int ranks_here = invocation.machine.ranks_here(place.ranks);
  const int cores = std::min(ranks_here, invocation.machine.usable_cores()) * (place.ranks / ranks_here);
  const double speed = measure_speed(invocation.config, plan.types) * cores;
  for (const char* scale : {"1", "1/2", "1/4", "1/8", "1/16", "1/32"}) {
    shrink_to(scale);
    // Both phases: five passes to warm up and at least three rounds of three; the rest is making and
    // checking.
    constexpr int kFewestPasses = 2 * (5 + 3 * 3);
    // Three weights in bf16, once as they are made and once as they are multiplied.
    const double bytes = 12.0 * static_cast<double>(plan.sizes.hidden * plan.sizes.intermediate) +
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

void DemoCommand::check_flags(const Preset& preset, int ranks) const {
  if (!(flags_.seconds > 0 && flags_.seconds <= 3600)) {
    bad_input(fmt::format("--seconds {}: need a number above 0 and up to 3600", flags_.seconds));
  }
  if (flags_.slices != 0 && (flags_.slices < ranks || flags_.slices > 1024)) {
    bad_input(fmt::format("--slices {}: need {}, the number of ranks, to 1024", flags_.slices, ranks));
  }
  if (flags_.link_delay_us < -1 || flags_.link_delay_us > 1'000'000) {
    bad_input(fmt::format("--link-delay-us {}: need 0 to 1000000", flags_.link_delay_us));
  }
  check_problem(gather_problem(preset.sizes, types_of(flags_), ranks));
}

void DemoCommand::print_heading(const Preset& preset, const DemoPlan& plan, const JobPlace& place) {
  const MlpSizes& sizes = plan.sizes;
  fmt::print("{}\n", place.heading);
  fmt::print("{} MLP at scale {} ({}): {} tokens, hidden {}, intermediate {}, {}, {:.1f} GFLOP a pass\n",
             preset.title, plan.scale, plan.why, sizes.tokens, sizes.hidden, sizes.intermediate,
             type_in_words(plan.types), flops_of(sizes) * 1e-9);
  fmt::print("x is split by tokens; all-gather + gate and up -> silu(gate) * up -> down + reduce-scatter\n");
  fmt::print("weights as models store them, [outputs, inputs]: the b of a product is column-major{}\n",
             plan.slices == place.ranks
                 ? ""
                 : fmt::format("; each rank has one of {} slices of them, so {} of {} run here", plan.slices,
                               place.ranks, plan.slices));
  if (plan.types.scales != harness::Scales::kNone) fmt::print("{}\n", scales_in_words(plan.types.scales));
  std::fflush(stdout);
}

int DemoCommand::launch(const Invocation& invocation) {
  const JobPlace place = flags_.job.choose(invocation.machine);
  const int ranks = place.ranks;
  const Preset& preset = find_preset(flags_.preset);
  check_flags(preset, ranks);
  const RowFile file(flags_.json);
  const DemoPlan plan = this->plan(invocation, place);
  const MlpSizes& sizes = plan.sizes;
  check_memory_need(place.with_ranks("demo"), place.part_here(bytes_needed(plan, ranks)));
  print_heading(preset, plan, place);
  const auto tell_plan = [&](Store& store) {
    send_to_ranks(store, kPlanKey,
                  {{"sizes", {sizes.tokens, sizes.hidden, sizes.intermediate}}, {"seconds", plan.seconds}});
  };
  const auto results =
      run_job({ranks, invocation.arguments, place.placement, tell_plan, invocation.tracing}, invocation.jobs);
  const nlohmann::json& phases = results[0].at("phases");
  std::vector<nlohmann::json> rows;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const DemoTimes times(results, i);
    print_phase(phases[i], times);
    rows.push_back(row_of_phase(phases[i], times));
  }
  conclude(results, MlpReference::num_samples(sizes, ranks), place.placement);
  for (nlohmann::json& row : rows) {
    row.update({{"op", "demo"},
                {"model", preset.title},
                {"scale", plan.scale},
                {"tokens", sizes.tokens},
                {"hidden", sizes.hidden},
                {"intermediate", sizes.intermediate},
                {"dtype", to_string(plan.types.dtype)},
                {"scales", scales_json(plan.types.scales)},
                {"fast_accum", plan.types.fast_accum},
                {"slices", plan.slices},
                {"b_order", "column"},
                {"world", ranks}});
    add_circumstances(row, invocation, place);
    file.append(row);
  }
  return kOk;
}

void DemoCommand::print_phase(const nlohmann::json& phase, const DemoTimes& times) const {
  const auto delay_us = phase.at("link_delay_us").get<std::int64_t>();
  fmt::print("\n{}\n", delay_us == 0 ? phase.at("link").get<std::string>()
                                     : fmt::format("simulated link: {} before each copy from a peer",
                                                   time_text(static_cast<double>(delay_us))));
  fmt::print("  {:<22} {:>9} {:>10} {:>8} {:>13} {:>7}  {}\n", "step", "serial", "overlapped", "speedup",
             "product alone", "hidden", "overlapped by");
  const bool shows_link = phase.at("has_link").get<bool>();
  for (int step = 0; step < kNumMlpSteps; ++step) {
    const bool is_op = step == kGatherGateUp || step == kDownScatter;
    const auto hidden = times.hidden(step);
    fmt::print("  {:<22} {:>9} {:>10} {:>7.2f}x {:>13} {:>7}  {}\n", kSteps[step],
               time_text(times.serial_us(step)), time_text(times.overlapped_us(step)), times.speedup(step),
               time_text(times.products_us(step)),
               shows_link && step != kActivation && hidden ? fmt::format("{:.0f} %", 100 * *hidden) : "-",
               is_op ? overlap_in_words(phase.at("ops")[step == kGatherGateUp ? 0 : 1]) : "");
  }
  const auto hidden = times.hidden(kWholeMlp);
  if (!shows_link || !hidden) return;
  fmt::print(
      "  hidden: {:.0f} % of the communication; serial shows {} of it beside the products, overlapped {}\n",
      100 * *hidden, time_text(times.serial_us(kWholeMlp) - times.products_us(kWholeMlp)),
      time_text(times.overlapped_us(kWholeMlp) - times.products_us(kWholeMlp)));
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
  if (results[0].at("phases")[0].at("hosts") > 1)
    return fmt::print("The link between hosts is a real one, so none is simulated.\n");
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
  plan.types = types_of(flags_);
  plan.types.by_tensor_cores = receive_placement(context).kind == DeviceKind::kCuda;
  plan.seconds = told.at("seconds");
  plan.link_delay_us = flags_.link_delay_us;
  return DemoRank(plan, context, flags_.job.config_of(config)).run();
}

}  // namespace

std::unique_ptr<Command> make_demo() {
  return std::make_unique<DemoCommand>();
}

}  // namespace tandem::cli
