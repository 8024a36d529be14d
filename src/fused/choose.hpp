#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/cost/table.hpp>
#include <tandem/device/device.hpp>
#include <tandem/fused/report.hpp>
#include <tandem/gemm/mm.hpp>
#include <vector>

#include "cost/schedules.hpp"

namespace tandem::fused {

using cost::CoreSpeeds;
using cost::predict;
using cost::Prediction;
using cost::Workload;
namespace tune = cost;  // keys and rows of measured times

/// Asks the device's models what `whole` takes, and one of its chunks of so many rows.
void predict_products(const gemm::Problem& whole, std::int64_t chunk_rows, const Device& device,
                      Workload& work);

struct Choice {
  Algorithm algorithm = Algorithm::kSerial;
  std::string reason;
  std::vector<Candidate> candidates;
};

/// The algorithm that runs when `asked` is asked for. kAuto takes what was measured to be fastest, or, where
/// nothing was (null), what is predicted to be; serial if no other is faster, in predictions for CPUs by more
/// than they can tell apart. Errors: kUnsupported for an algorithm that this device does not have; nothing is
/// put in its place.
[[nodiscard]] Result<Choice> choose(std::string_view who, Algorithm asked, const Workload& work,
                                    const tune::Row* measured, DeviceId device);

/// What was measured for `key` on the group's device, or null; by the group's table alone, so that ranks
/// whose devices describe themselves differently choose alike.
[[nodiscard]] const tune::Row* find_measured(const Group& group, const std::optional<tune::Key>& key);
/// A Key's link. It also keeps times of another kind of device apart, whatever device the group was told.
[[nodiscard]] std::string link_name(DeviceKind kind, std::chrono::nanoseconds delay);

}  // namespace tandem::fused
