#include "fused/choose.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "fused/hopper_rates.hpp"
#include "gemm/predict.hpp"

namespace tandem::fused {
namespace {

/// From docs/design/schedules.md. Only their ratio to each other and to the link matters.
struct Rates {
  double flops_per_us;       ///< of products
  double copy_bytes_per_us;  ///< from a peer
  double barrier_us;         ///< a meeting of all ranks
  double chunk_us;           ///< what a product loses by being cut into chunks, each
};
constexpr Rates kCore = {.flops_per_us = 40e3, .copy_bytes_per_us = 10e3, .barrier_us = 20, .chunk_us = 10};
constexpr Rates kHopper = {.flops_per_us = kHopperFlopsPerUs,
                           .copy_bytes_per_us = kHopperCopyBytesPerUs,
                           .barrier_us = 10,
                           .chunk_us = 2};
/// Measured on H200s: what copies by engines cost beside their bytes, with the words and the meetings around
/// them, and how much longer than kHopper has it their bytes take where nothing hides them
/// (bench/results/h200_x2_random_preset.json).
struct EngineRates {
  double start_us = 28;
  double slowness = 1.1;
};
constexpr EngineRates kHopperEngines;

double to_us(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

// Copies are work for the cores that multiply too; streams are threads.
Prediction predict_on_cores(const Workload& work) {
  // What one rank has of a processor: at most one core a stream, less where ranks share the cores.
  const double cores = static_cast<double>(work.cores) / work.world;
  const double one_stream = std::min(1.0, cores);
  const double two_streams = std::min(2.0, cores);
  const double product_us = work.chunk_flops / kCore.flops_per_us;
  const double copy_us = static_cast<double>(work.chunk_bytes) / kCore.copy_bytes_per_us;
  const double link_us = to_us(work.link);
  const int peers = work.world - 1;

  const double work_us = work.world * product_us + peers * copy_us;
  // The side stream takes the odd steps; a step on a stream of its own is a link's wait, a copy and a
  // product.
  const int side_steps = work.world / 2;
  const int own_steps = peers - side_steps;
  const double step_us = link_us + (copy_us + product_us) / one_stream;
  const double longest_lane_us =
      std::max(side_steps * step_us, own_steps * step_us + product_us / one_stream);
  // The side stream pushes, the caller's multiplies; the last chunk that comes is multiplied behind its push.
  const double pushes_us = peers * (link_us + copy_us / one_stream);
  const double products_us = work.world * product_us / one_stream;
  const double longest_native_us = std::max(products_us, pushes_us + product_us / one_stream);
  return {.serial_us = peers * link_us + work_us / one_stream + work.serial_barriers * kCore.barrier_us,
          .pipelined_us = std::max(longest_lane_us, work_us / two_streams) + work.world * kCore.chunk_us +
                          work.pipelined_barriers * kCore.barrier_us,
          .native_us = std::max(longest_native_us, work_us / two_streams) + work.world * kCore.chunk_us};
}

// Copy engines work beside the products, which share one processor whatever the stream.
Prediction predict_on_gpu(const Workload& work) {
  const double chunk_us = work.chunk_product_us.value_or(work.chunk_flops / kHopper.flops_per_us);
  const double product_us = work.product_us.value_or(work.world * chunk_us);
  const int peers = work.world - 1;
  const double links_us = peers * to_us(work.link);
  const double bytes_us = peers * static_cast<double>(work.chunk_bytes) / kHopper.copy_bytes_per_us;
  const double gets_us = links_us + bytes_us;
  const double collective_us = links_us + work.collective_us.value_or(bytes_us);
  const double meetings_us = work.pipelined_barriers * kHopper.barrier_us;
  const double cut_us = work.world * kHopper.chunk_us + meetings_us;
  // The last chunk is multiplied behind its copy; what is lost by cutting is lost while nothing is waited
  // for.
  const double pipelined_us =
      std::max(work.world * chunk_us + cut_us, links_us + kHopperEngines.slowness * bytes_us + chunk_us +
                                                   std::max(kHopperEngines.start_us, meetings_us));
  // The model of the native product knows the links as they are, not a simulated one.
  double native_us = work.native_us.value_or(product_us);
  if (!work.native_us || work.link.count() > 0) native_us = std::max(native_us, gets_us + chunk_us);
  return {.serial_us = product_us + collective_us, .pipelined_us = pipelined_us, .native_us = native_us};
}

std::vector<Candidate> candidates_of(const Workload& work, const tune::Row* measured) {
  const Prediction us = predict(work);
  std::vector<Candidate> all = {{.algorithm = Algorithm::kSerial, .predicted_us = us.serial_us},
                                {.algorithm = Algorithm::kPipelined, .predicted_us = us.pipelined_us},
                                {.algorithm = Algorithm::kNative,
                                 .why_not = work.native.why_not,
                                 .predicted_us = work.native.ok ? us.native_us : 0}};
  for (Candidate& candidate : all) {
    if (measured == nullptr || !candidate.why_not.empty()) continue;
    const auto found = measured->us.find(to_string(candidate.algorithm));
    if (found != measured->us.end()) candidate.measured_us = found->second;
  }
  return all;
}

struct FastestTwo {
  const Candidate* best = nullptr;
  const Candidate* next = nullptr;  ///< null if there is no other with a time
};
/// By `cost`, nullopt for what has none; the first of equals.
template <class Cost>
FastestTwo fastest_two(const std::vector<Candidate>& candidates, Cost cost) {
  FastestTwo two;
  for (const Candidate& candidate : candidates) {
    const std::optional<double> us = cost(candidate);
    if (!us || !candidate.why_not.empty()) continue;
    if (two.best == nullptr || *us < *cost(*two.best)) {
      two = {&candidate, two.best};
    } else if (two.next == nullptr || *us < *cost(*two.next)) {
      two.next = &candidate;
    }
  }
  return two;
}

Choice take_predicted(Choice choice) {
  const auto [best, next] =
      fastest_two(choice.candidates, [](const Candidate& c) { return std::optional(c.predicted_us); });
  choice.algorithm = best->algorithm;
  choice.reason = fmt::format("predicted {:.0f} us against {:.0f} us {}", best->predicted_us,
                              next->predicted_us, to_string(next->algorithm));
  return choice;
}

Choice take_measured(Choice choice) {
  // Whoever is to replace serial has to win by more than medians of a quiet machine scatter.
  constexpr double kNoise = 0.02;
  const auto [best, next] = fastest_two(choice.candidates, [](const Candidate& c) {
    std::optional<double> us = c.measured_us;
    if (us && c.algorithm == Algorithm::kSerial) *us *= 1 - kNoise;
    return us;
  });
  choice.algorithm = best->algorithm;
  choice.reason = fmt::format("measured {:.0f} us", *best->measured_us);
  if (next == nullptr) return choice;
  choice.reason += fmt::format(" against {:.0f} us {}", *next->measured_us, to_string(next->algorithm));
  if (*best->measured_us > *next->measured_us)
    choice.reason += fmt::format(", {:.0f} % are noise", kNoise * 100);
  return choice;
}

}  // namespace

void predict_products(const gemm::Problem& whole, std::int64_t chunk_rows, const Device& device,
                      Workload& work) {
  work.product_us = gemm::predicted_us(whole, device);
  gemm::Problem chunk = whole;
  chunk.m = chunk_rows;
  work.chunk_product_us = gemm::predicted_us(chunk, device);
}

Prediction predict(const Workload& work) {
  return work.kind == DeviceKind::kCuda ? predict_on_gpu(work) : predict_on_cores(work);
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
  return measured != nullptr ? take_measured(std::move(choice)) : take_predicted(std::move(choice));
}

const tune::Row* find_measured(const Group& group, const std::optional<tune::Key>& key) {
  return key ? group.tune_table().find(*key) : nullptr;
}

std::string link_name(DeviceKind kind, std::chrono::nanoseconds delay) {
  const char* const memory = kind == DeviceKind::kCpu ? "shared memory" : "peer memory";
  return delay.count() == 0 ? memory : fmt::format("{} + {:.0f} us", memory, to_us(delay));
}

}  // namespace tandem::fused
