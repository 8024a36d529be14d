#include "fused/choose.hpp"

#include <algorithm>
#include <tandem/base/time_text.hpp>
#include <vector>

#include "base/format.hpp"
#include "fused/hopper_rates.hpp"
#include "gemm/product.hpp"

namespace tandem::fused {
namespace {

/// Of a core, what the library does not measure: from docs/design/schedules.md.
constexpr double kCoreBarrierUs = 20;  ///< a meeting of all ranks, of which each has a core
constexpr double kCoreChunkUs = 10;  ///< what a product loses by being cut into chunks, each, beside packing
/// Predictions for cores are no better than this: algorithms that differ by less count as equal.
constexpr double kCoreNoise = 0.02;

struct HopperRates {
  double flops_per_us = kHopperFlopsPerUs;           ///< of products
  double copy_bytes_per_us = kHopperCopyBytesPerUs;  ///< from a peer
  double barrier_us = 10;                            ///< a meeting of all ranks
  double chunk_us = 2;                               ///< what a product loses by being cut into chunks, each
};
constexpr HopperRates kHopper;
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
Prediction predict_on_cores(const Workload& work, const CoreSpeeds& core) {
  // What one rank has of a processor: at most one core a stream, less where ranks share the cores.
  const double cores = static_cast<double>(work.cores) / work.world;
  const double one_stream = std::min(1.0, cores);
  const double two_streams = std::min(2.0, cores);
  const double flops_us = work.chunk_flops / core.flops_per_us;
  const double product_us = flops_us + work.chunk_b_elements / core.packed_per_us;  // of a chunk
  const auto chunk_bytes = static_cast<double>(work.chunk_bytes);
  const double copy_us = chunk_bytes / core.copy_bytes_per_us;
  const double sum_us = work.sums ? work.world * chunk_bytes / core.sum_bytes_per_us : 0;
  const double link_us = to_us(work.link);
  const int peers = work.world - 1;

  const double serial_us =
      work.world * flops_us + work.b_elements / core.packed_per_us + work.serial_copies * copy_us + sum_us;
  const double work_us = work.world * product_us + peers * copy_us + sum_us;
  // The side stream takes the odd steps; a step on a stream of its own is a link's wait, a copy and a
  // product.
  const int side_steps = work.world / 2;
  const int own_steps = peers - side_steps;
  const double step_us = link_us + (copy_us + product_us) / one_stream;
  const double longest_lane_us =
      std::max(side_steps * step_us, own_steps * step_us + product_us / one_stream) + sum_us / one_stream;
  // The side stream pushes, the caller's multiplies; the last chunk that comes is multiplied behind its push.
  // Ranks that await each other's shards meet once.
  const double pushes_us = peers * (link_us + copy_us / one_stream);
  const double products_us = work.world * product_us / one_stream;
  const double longest_native_us = std::max(products_us, pushes_us + product_us / one_stream);
  const double cut_us = work.world * kCoreChunkUs;
  const double barrier_us = kCoreBarrierUs * std::max(1.0, 1 / cores);  // the ranks of a core go one by one
  return {.serial_us = peers * link_us + serial_us / one_stream + work.serial_barriers * barrier_us,
          .pipelined_us = std::max(longest_lane_us, work_us / two_streams) + cut_us +
                          work.pipelined_barriers * barrier_us,
          .native_us = std::max(longest_native_us, work_us / two_streams) + cut_us + barrier_us};
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
                      kind == DeviceKind::kCpu ? kCoreNoise : 0);
}

Choice take_measured(Choice choice) {
  // Whoever is to replace serial has to win by more than medians of a quiet machine scatter.
  constexpr double kNoise = 0.02;
  return take_fastest(std::move(choice), &Candidate::measured_us, "measured", kNoise);
}

}  // namespace

void predict_products(const gemm::Problem& whole, std::int64_t chunk_rows, const Device& device,
                      Workload& work) {
  work.product_us = gemm::predicted_us(gemm::product_of(whole), device);
  gemm::Problem chunk = whole;
  chunk.m = chunk_rows;
  work.chunk_product_us = gemm::predicted_us(gemm::product_of(chunk), device);
}

std::optional<Prediction> predict(const Workload& work) {
  if (work.kind == DeviceKind::kCuda) return predict_on_gpu(work);
  if (!work.core) return std::nullopt;
  return predict_on_cores(work, *work.core);
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
  return delay.count() == 0 ? memory : fmt::format("{} + {:.0f} us", memory, to_us(delay));
}

}  // namespace tandem::fused
