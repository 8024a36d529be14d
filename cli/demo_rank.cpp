#include "demo_rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string_view>

#include "failure.hpp"
#include "harness/stopwatch.hpp"
#include "rank_job.hpp"
#include "session.hpp"
#include "timing.hpp"

namespace tandem::cli {

DemoRank::DemoRank(const DemoPlan& plan, const RankContext& context, const Config& config)
    : plan_(plan),
      context_(context),
      config_(config),
      weights_(plan.sizes, plan.types, context.rank, context.size) {}

void DemoRank::say(const std::string& text) const {
  if (context_.rank != 0) return;
  fmt::print("  {}\n", text);
  std::fflush(stdout);
}

nlohmann::json DemoRank::run() {
  nlohmann::json phases = nlohmann::json::array();
  say("weights made");
  phases.push_back(run_phase({"as it is", 0}));
  const bool on_gpus = receive_placement(context_).kind == DeviceKind::kCuda;
  const bool has_link = on_gpus || phases[0].at("hosts") > 1;
  // By default copying takes as long as 60 % of the product that hides it, where there is no link to show.
  const int peers = std::max(1, context_.size - 1);
  const double hidden_us = has_link ? 0 : std::max(200.0, 0.6 * serial_gather_us_ / peers);
  const auto delay = plan_.link_delay_us >= 0 ? plan_.link_delay_us : std::llround(hidden_us / 100) * 100;
  if (delay > 0 && context_.size > 1) phases.push_back(run_phase({"simulated link", delay}));
  return {{"phases", phases},
          {"wrong", wrong_.count},
          {"first_wrong", wrong_.first},
          {"worst_error", worst_error_},
          {"num_compared", num_compared_}};
}

nlohmann::json DemoRank::run_phase(const DemoPhase& phase) {
  Config config = config_;
  config.link_delay = std::chrono::microseconds(phase.link_delay_us);
  const Session session(context_, config, fmt::format("demo {}", phase.name));
  check_link(session);
  Mlp mlp(weights_, session);
  // The first pass of each is warm-up, and checked like all others.
  run_once(mlp, "serial", phase);
  if (phase.link_delay_us == 0) accept_first(mlp, session);
  nlohmann::json result{{"link_delay_us", phase.link_delay_us},
                        {"hosts", session.group().num_hosts()},
                        {"transport", session.transport()},
                        {"link", session.link_in_words()},
                        {"has_link", phase.link_delay_us > 0 || session.has_link()}};
  overlapped_ = choose_overlap(mlp, phase, result);
  double round_us = run_once(mlp, "serial", phase)[kWholeMlp];
  round_us += run_once(mlp, "overlapped", phase)[kWholeMlp];
  round_us += run_once(mlp, "products", phase)[kWholeMlp];

  const std::vector<double> all = session.exchange(round_us, "demo rounds");
  const double slowest_us = *std::max_element(all.begin(), all.end());
  const auto rounds = static_cast<int>(std::clamp(plan_.seconds / 2 * 1e6 / slowest_us - 2.0, 3.0, 15.0));
  say(fmt::format("{}: {} rounds of serial, overlapped, and products alone", phase.name, rounds));
  constexpr std::size_t kNumVariants = std::size(kDemoVariants);
  for (std::size_t round = 0; round < static_cast<std::size_t>(rounds); ++round) {
    for (std::size_t turn = 0; turn < kNumVariants; ++turn) {
      const char* variant = kDemoVariants[(round + turn) % kNumVariants];
      const MlpTimes times = run_once(mlp, variant, phase);
      for (std::size_t step = 0; step < times.size(); ++step) {
        result["times"][variant][step].push_back(times[step]);
      }
    }
  }
  if (phase.link_delay_us == 0) {
    const double own = harness::median(result["times"]["serial"][kGatherGateUp].get<std::vector<double>>());
    serial_gather_us_ = session.exchange(own, "demo link")[0];
  }
  session.tell_trace();
  return result;
}

void DemoRank::check_link(const Session& session) const {
  const int num_hosts = session.group().num_hosts();
  if (num_hosts == 1 || plan_.link_delay_us <= 0) return;
  not_supported(
      fmt::format("demo --link-delay-us {}: ranks are on {} hosts, and rows cross a real link; leave "
                  "out the flag",
                  plan_.link_delay_us, num_hosts));
}

MlpAlgorithms DemoRank::choose_overlap(Mlp& mlp, const DemoPhase& phase, nlohmann::json& result) {
  mlp.forward({Algorithm::kAuto, Algorithm::kAuto});
  compare_bits(mlp, "auto", phase);
  const auto choose = [&](const OpReport& report) {
    const bool overlaps = report.algorithm != Algorithm::kSerial;
    const Algorithm taken = overlaps ? report.algorithm : Algorithm::kPipelined;
    nlohmann::json& op = result["ops"].emplace_back();
    op = {{"overlapped_by", to_string(taken)},
          {"auto", to_string(report.algorithm)},
          {"reason", report.reason}};
    for (const Candidate& candidate : report.candidates) {
      if (candidate.algorithm == Algorithm::kSerial && candidate.predicted_us)
        op["predicted_serial_us"] = *candidate.predicted_us;
    }
    return taken;
  };
  const Algorithm gather = choose(mlp.gather_report());
  return {gather, choose(mlp.scatter_report())};
}

MlpTimes DemoRank::run_once(Mlp& mlp, const char* variant, const DemoPhase& phase) {
  if (std::string_view(variant) == "products") return mlp.products_alone();
  const bool overlaps = std::string_view(variant) == "overlapped";
  const MlpTimes times = mlp.forward(overlaps ? overlapped_ : kSerialMlp);
  if (!first_bits_.empty()) compare_bits(mlp, variant, phase);
  return times;
}

void DemoRank::accept_first(const Mlp& mlp, const Session& session) {
  const MlpReference reference(weights_, session);
  worst_error_ = reference.compare(mlp.download(), wrong_);
  say("samples of the outputs compared with float64");
  for (const harness::GuardedTensor* tensor : mlp.results()) {
    const auto* begin = tensor->host().data_as<const std::byte>();
    first_bits_.emplace_back(begin, begin + tensor->host().size_bytes());
  }
}

void DemoRank::compare_bits(const Mlp& mlp, const char* variant, const DemoPhase& phase) {
  constexpr const char* kNames[] = {"gate", "up", "y"};
  for (std::size_t i = 0; i < first_bits_.size(); ++i) {
    const harness::GuardedTensor& tensor = *mlp.results()[i];
    num_compared_ += tensor.view().numel();
    if (!tensor.guards_are_whole()) wrong_.add(fmt::format("bytes beside {} were overwritten", kNames[i]));
    const std::string what = fmt::format("{} on rank {} in the first serial run and in a later one ({}, {})",
                                         kNames[i], context_.rank, variant, phase.name);
    compare_runs({.first = first_bits_[i],
                  .second = tensor.host(),
                  .k = mlp.slack_k(),
                  .same_bits = mlp.has_same_bits(),
                  .slack = mlp.slack_of_result(i)},
                 what, wrong_);
  }
}

DemoTimes::DemoTimes(const std::vector<nlohmann::json>& results, std::size_t phase) {
  for (std::size_t v = 0; v < std::size(kDemoVariants); ++v) {
    const auto ends_of = [&](std::size_t step) {
      return slowest_rank(results, fmt::format("/phases/{}/times/{}/{}", phase, kDemoVariants[v], step));
    };
    us_[v][kWholeMlp] = harness::median(ends_of(kWholeMlp));
    for (std::size_t step = 0; step < kWholeMlp; ++step) {
      std::vector<double> us = ends_of(step);
      const std::vector<double> starts = step == 0 ? std::vector<double>(us.size()) : ends_of(step - 1);
      for (std::size_t i = 0; i < us.size(); ++i) us[i] -= starts[i];
      us_[v][step] = harness::median(us);
    }
  }
}

std::optional<double> DemoTimes::hidden(int step) const {
  const double shown_us = serial_us(step) - products_us(step);
  if (shown_us <= 0.01 * serial_us(step)) return std::nullopt;
  return 1 - (overlapped_us(step) - products_us(step)) / shown_us;
}

}  // namespace tandem::cli
