#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/support.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/cost/table.hpp>
#include <tandem/device/device.hpp>
#include <tandem/fused/report.hpp>
#include <vector>

#include "cost/schedules.hpp"
#include "gemm/product.hpp"

namespace tandem::fused {

using cost::CoreSpeeds;
using cost::predict;
using cost::Prediction;
using cost::Workload;

/// What a prediction goes by beside the problem.
struct Surroundings {
  std::chrono::nanoseconds link{0};  ///< see Workload::link
  const cost::GpuRates& gpu;
};

/// Asks the device's models what `whole` takes, and one of its chunks of so many rows.
void predict_products(const gemm::Product& whole, std::int64_t chunk_rows, const Device& device,
                      const cost::GpuRates& gpu, Workload& work);

/// What the report of a batch-invariant call adds: who makes these products.
[[nodiscard]] std::string invariance_in_words(std::span<const gemm::Product> products, const Device& device);

struct Choice {
  Algorithm algorithm = Algorithm::kSerial;
  std::string reason;
  std::vector<Candidate> candidates;
};

/// Whether this op runs by `algorithm`, one of its list, and what that takes.
template <class Entry, class Problem>
[[nodiscard]] Candidate candidate_of(const Entry& algorithm, const Problem& problem, const Device& device,
                                     const std::optional<Prediction>& us, const cost::Row* measured) {
  Candidate candidate{.algorithm = algorithm.name};
  const Support support = algorithm.can_run(problem, device);
  if (!support) candidate.why_not = support.why_not;
  if (support && us) candidate.predicted_us = (*us).*algorithm.predicted_us;
  if (!support || measured == nullptr) return candidate;
  const auto found = measured->us.find(to_string(algorithm.name));
  if (found != measured->us.end()) candidate.measured_us = found->second;
  return candidate;
}

/// What the report adds where an algorithm runs, and what of it the ranks must have in common; may be empty.
struct Notes {
  std::string reason = {};
  std::string agreed = {};
};

/// What is asked for.
struct Asked {
  std::string_view who;  ///< "fused_all_gather_matmul"
  Algorithm algorithm = Algorithm::kAuto;
  int world = 1;
  int num_hosts = 1;
  DeviceId device = {};
  bool is_measured = false;  ///< somebody measured this problem
};

/// The algorithm that runs. kAuto takes what was measured to be fastest, or, where nothing was, what is
/// predicted to be; serial if no other is faster, in predictions for CPUs by more than they can tell apart.
/// Errors: kUnsupported for an algorithm that this device or this op does not have; nothing is put in its
/// place.
[[nodiscard]] Result<Choice> choose(const Asked& asked, std::vector<Candidate> candidates);

/// What was measured for `key` on the group's device, or null; by the group's table alone, so that ranks
/// whose devices describe themselves differently choose alike.
[[nodiscard]] const cost::Row* find_measured(const Group& group, const std::optional<cost::Key>& key);
/// A Key's link. It also keeps times of another kind of device apart, whatever device the group was told.
[[nodiscard]] std::string link_name(DeviceKind kind, std::chrono::nanoseconds delay);

}  // namespace tandem::fused
