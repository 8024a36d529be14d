#include "fused/call/core_speeds.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <tandem/base/log.hpp>
#include <tandem/base/time_text.hpp>
#include <tandem/cost/rates.hpp>
#include <vector>

#include "base/format.hpp"
#include "base/try.hpp"
#include "base/usable_cores.hpp"
#include "bootstrap/group_rates.hpp"
#include "fused/call/core_meter.hpp"

namespace tandem::fused {
namespace {

/// From the folder of what was measured, or by measuring what is missing there, which is kept.
Result<CoreRates> find_rates(const std::vector<CoreRate>& needed, Group& group, Device& device) {
  const Config& config = group.config();
  const std::string name = device.description();
  const int busy_cores = std::min({group.size(), bootstrap::cores_of(group), usable_cores()});
  const cost::FoundRates found = cost::read_rates(config.tune_folder, name, busy_cores);
  if (!found.warning.empty()) log(config.log_level, LogLevel::kWarning, found.warning);
  CoreRates rates = config.core_rates;
  rates.fill_from(found.rates);
  std::vector<CoreRate> missing;
  std::copy_if(needed.begin(), needed.end(), std::back_inserter(missing),
               [&](CoreRate rate) { return !rates.knows(rate); });
  if (missing.empty()) return rates;
  const auto* const meter = device.service<CoreMeter>();
  if (meter == nullptr) {
    return failf(
        ErrorCode::kUnsupported,
        "auto: {} has nothing that measures its cores; open it by open_device(), set TANDEM_RATES, or ask "
        "for an algorithm by name",
        to_string(device.id()));
  }
  const auto begin = std::chrono::steady_clock::now();
  TANDEM_ASSIGN(const CoreRates measured, meter->measure(missing, busy_cores, device));
  const std::string took = time_text(std::chrono::steady_clock::now() - begin);
  log(config.log_level, LogLevel::kDebug,
      fmt::format("measured a core of {}, {} at once, in {}: {}", name, busy_cores, took,
                  to_string(measured)));
  if (!config.tune_folder.empty()) {
    // Where nothing can be kept every group measures again.
    const auto kept = cost::add_rates(config.tune_folder, name, busy_cores, measured);
    if (!kept) log(config.log_level, LogLevel::kDebug, kept.error().text());
  }
  rates.fill_from(measured);
  return rates;
}

}  // namespace

Result<std::optional<CoreSpeeds>> core_speeds(const CoreWork& work, bool may_measure, Group& group,
                                              Device& device) {
  if (device.id().kind != DeviceKind::kCpu || group.size() == 1) return std::nullopt;
  std::vector<CoreRate> needed = {work.product, work.packing, CoreRate::kCopy};
  if (work.sum) needed.push_back(*work.sum);
  CoreRates rates = bootstrap::known_rates(group);
  if (may_measure) {
    TANDEM_ASSIGN(rates,
                  bootstrap::agreed_rates(group, needed, [&] { return find_rates(needed, group, device); }));
  } else if (!std::all_of(needed.begin(), needed.end(), [&](CoreRate rate) { return rates.knows(rate); })) {
    return std::nullopt;
  }
  return CoreSpeeds{.flops_per_us = rates[work.product],
                    .packed_per_us = rates[work.packing],
                    .copy_bytes_per_us = rates[CoreRate::kCopy],
                    .sum_bytes_per_us = work.sum ? rates[*work.sum] : 0};
}

}  // namespace tandem::fused
