#include "fused/choose.hpp"

#include <algorithm>
#include <tandem/base/time_text.hpp>
#include <vector>

#include "base/format.hpp"
#include "gemm/predict.hpp"

namespace tandem::fused {
namespace {

std::vector<Candidate> candidates_of(const Workload& work, const tune::Row* measured) {
  std::vector<Candidate> all = {{.algorithm = Algorithm::kSerial},
                                {.algorithm = Algorithm::kPipelined},
                                {.algorithm = Algorithm::kNative, .why_not = work.native.why_not}};
  const std::optional<Prediction> us = predict(work);
  for (Candidate& candidate : all) {
    if (!candidate.why_not.empty()) continue;
    if (us) {
      candidate.predicted_us = candidate.algorithm == Algorithm::kSerial      ? us->serial_us
                               : candidate.algorithm == Algorithm::kPipelined ? us->pipelined_us
                                                                              : us->native_us;
    }
    if (measured == nullptr) continue;
    const auto found = measured->us.find(to_string(candidate.algorithm));
    if (found != measured->us.end()) candidate.measured_us = found->second;
  }
  return all;
}

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

void predict_products(const gemm::Problem& whole, std::int64_t chunk_rows, const Device& device,
                      Workload& work) {
  work.element_bytes = size_bytes(whole.in);
  work.product_us = gemm::predicted_us(whole, device);
  gemm::Problem chunk = whole;
  chunk.m = chunk_rows;
  work.chunk_product_us = gemm::predicted_us(chunk, device);
}

Result<Choice> choose(std::string_view who, Algorithm asked, const Workload& work, const tune::Row* measured,
                      DeviceId device) {
  Choice choice{.algorithm = asked, .reason = "asked for", .candidates = candidates_of(work, measured)};
  for (const Candidate& candidate : choice.candidates) {
    if (candidate.algorithm != asked || candidate.why_not.empty()) continue;
    return failf(ErrorCode::kUnsupported,
                 "{}: algorithm {} cannot run on {}: {}; ask for auto, pipelined or serial", who,
                 to_string(asked), to_string(device), candidate.why_not);
  }
  if (asked != Algorithm::kAuto) return choice;
  if (work.world == 1) {
    choice.algorithm = Algorithm::kSerial;
    choice.reason = "one rank: there is nothing to overlap";
    return choice;
  }
  return measured != nullptr ? take_measured(std::move(choice))
                             : take_predicted(std::move(choice), work.kind);
}

const tune::Row* find_measured(const Group& group, const std::optional<tune::Key>& key) {
  return key ? group.tune_table().find(*key) : nullptr;
}

std::string link_name(DeviceKind kind, std::chrono::nanoseconds delay) {
  const char* const memory = kind == DeviceKind::kCpu ? "shared memory" : "peer memory";
  const double us = std::chrono::duration<double, std::micro>(delay).count();
  return delay.count() == 0 ? memory : fmt::format("{} + {:.0f} us", memory, us);
}

}  // namespace tandem::fused
