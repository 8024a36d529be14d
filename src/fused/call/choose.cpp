#include "fused/call/choose.hpp"

#include <algorithm>
#include <tandem/base/time_text.hpp>
#include <tandem/fused/forecast.hpp>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "gemm/product.hpp"

namespace tandem::fused {
namespace {

/// The candidates that have a time, the fastest first; of equals the one that comes first.
std::vector<const Candidate*> by_time(const std::vector<Candidate>& candidates,
                                      std::optional<double> Candidate::*us) {
  std::vector<const Candidate*> timed;
  for (const Candidate& candidate : candidates) {
    if (candidate.*us) timed.push_back(&candidate);
  }
  std::stable_sort(timed.begin(), timed.end(),
                   [us](const Candidate* x, const Candidate* y) { return *(x->*us) < *(y->*us); });
  return timed;
}

/// Takes the fastest; but serial, unless another one takes less by more than `noise`. Says what all take.
Choice take_fastest(Choice choice, std::optional<double> Candidate::*us, std::string_view how, double noise) {
  const auto timed = by_time(choice.candidates, us);
  const auto cost = [&](const Candidate* c) {
    return *(c->*us) * (c->algorithm == Algorithm::kSerial ? 1 - noise : 1);
  };
  const Candidate* const taken = *std::min_element(
      timed.begin(), timed.end(), [&](const auto* x, const auto* y) { return cost(x) < cost(y); });
  const double taken_us = *(taken->*us);
  const double margin = taken->algorithm == Algorithm::kSerial ? noise : 0;
  choice.algorithm = taken->algorithm;
  choice.reason = fmt::format("{} {}", how, time_text(taken_us));
  const char* separator = "; ";
  bool is_close = false;
  for (const Candidate* other : timed) {
    if (other == taken) continue;
    const double other_us = *(other->*us);
    choice.reason += fmt::format("{}{} {}", separator, to_string(other->algorithm), time_text(other_us));
    separator = ", ";
    is_close = is_close || other_us <= taken_us * (1 + margin);
  }
  if (is_close && margin > 0)
    choice.reason += fmt::format("; within {:.0f} % serial is kept", margin * 100);
  else if (is_close)
    choice.reason += fmt::format("; of equals {} comes first", to_string(choice.algorithm));
  return choice;
}

Choice take_predicted(Choice choice, DeviceKind kind) {
  return take_fastest(std::move(choice), &Candidate::predicted_us, "predicted",
                      kind == DeviceKind::kCpu ? cost::kCore.noise : 0);
}

Choice take_measured(Choice choice) {
  // Whoever is to replace serial has to win by more than medians of a quiet machine scatter.
  constexpr double kNoise = 0.02;
  return take_fastest(std::move(choice), &Candidate::measured_us, "measured", kNoise);
}

}  // namespace

void predict_products(const gemm::Product& whole, std::int64_t chunk_rows, const Device& device,
                      const cost::GpuRates& gpu, Workload& work) {
  work.element_bytes = size_bytes(whole.a);
  work.product_us = gemm::predicted_us(whole, device, gpu);
  gemm::Product chunk = whole;
  chunk.m = chunk_rows;
  work.chunk_product_us = gemm::predicted_us(chunk, device, gpu);
}

std::string invariance_in_words(std::span<const gemm::Product> products, const Device& device) {
  std::vector<std::string> runners;
  for (const gemm::Product& product : products) {
    std::string runner = gemm::runner_in_words(product, device);
    if (std::find(runners.begin(), runners.end(), runner) == runners.end())
      runners.push_back(std::move(runner));
  }
  return fmt::format("; batch invariant, products by {}", fmt::join(runners, " and "));
}

Result<Choice> choose(const Asked& asked, std::vector<Candidate> candidates) {
  // A report says of every algorithm why it does not run, also of those that this op does not have.
  for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined, Algorithm::kNative}) {
    const bool is_there = std::any_of(candidates.begin(), candidates.end(),
                                      [&](const Candidate& one) { return one.algorithm == algorithm; });
    if (!is_there) candidates.push_back({.algorithm = algorithm, .why_not = "this op has no such algorithm"});
  }
  Choice choice{.algorithm = asked.algorithm, .reason = "asked for", .candidates = std::move(candidates)};
  const bool is_auto = asked.algorithm == Algorithm::kAuto;
  const auto found = std::find_if(choice.candidates.begin(), choice.candidates.end(),
                                  [&](const Candidate& one) { return one.algorithm == asked.algorithm; });
  if (!is_auto && !found->why_not.empty()) {
    return failf(ErrorCode::kUnsupported,
                 "{}: algorithm {} cannot run on {}: {}; ask for auto, pipelined or serial", asked.who,
                 to_string(asked.algorithm), to_string(asked.device), found->why_not);
  }
  if (!is_auto) return choice;
  if (asked.world == 1) {
    choice.algorithm = Algorithm::kSerial;
    choice.reason = "one rank: there is nothing to overlap";
    return choice;
  }
  if (asked.num_hosts > 1) {
    const bool is_native = std::any_of(
        choice.candidates.begin(), choice.candidates.end(),
        [](const Candidate& one) { return one.algorithm == Algorithm::kNative && one.why_not.empty(); });
    choice.algorithm = algorithm_across_hosts(is_native);
    choice.reason = fmt::format("rows cross between {} hosts beside the product{}", asked.num_hosts,
                                is_native ? ", which waits for them" : "s");
    return choice;
  }
  return asked.is_measured ? take_measured(std::move(choice))
                           : take_predicted(std::move(choice), asked.device.kind);
}

const cost::Row* find_measured(const Group& group, const std::optional<cost::Key>& key) {
  return key ? group.tune_table().find(*key) : nullptr;
}

std::string link_name(DeviceKind kind, std::chrono::nanoseconds delay) {
  const char* const memory = kind == DeviceKind::kCpu ? "shared memory" : "peer memory";
  const double us = std::chrono::duration<double, std::micro>(delay).count();
  return delay.count() == 0 ? memory : fmt::format("{} + {:.0f} us", memory, us);
}

}  // namespace tandem::fused
