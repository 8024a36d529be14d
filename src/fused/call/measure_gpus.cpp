#include <algorithm>
#include <chrono>
#include <string>
#include <tandem/base/log.hpp>
#include <tandem/base/time_text.hpp>
#include <tandem/cost/folder.hpp>
#include <tandem/fused/measure_gpus.hpp>
#include <vector>

#include "base/format.hpp"
#include "base/try.hpp"
#include "bootstrap/control.hpp"
#include "bootstrap/control_memory.hpp"
#include "bootstrap/group_rates.hpp"
#include "bootstrap/told_by_all.hpp"
#include "fused/call/gpu_probes.hpp"

namespace tandem::fused {
namespace {

/// What a rank tells the others before anything is measured.
struct Standpoint {
  std::int64_t gpu = 0;  ///< of its process
  std::uint64_t probes = 0;
  char why_not[256] = {};  ///< nothing is to be measured; of rank 0
};

std::string why_not_kept(const Config& config) {
  if (!config.measure_gpus) return "TANDEM_MEASURE_GPUS is 0";
  if (config.tune_folder.empty()) return "there is no folder to keep it in";
  const auto prepared = cost::check_folder(config.tune_folder);
  return prepared ? "" : prepared.error().text();
}

/// Empty where all is well.
std::string why_not_measured(const std::vector<Standpoint>& all, Group& group) {
  if (all[0].why_not[0] != '\0') return all[0].why_not;
  const auto process_of = [&](std::size_t rank) {
    return bootstrap::control_of(group).memory()->rank(static_cast<int>(rank)).process;
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (all[i].gpu == all[j].gpu && process_of(i) == process_of(j))
        return fmt::format("ranks {} and {} share a GPU", j, i);
    }
  }
  return "";
}

/// What took longest on any rank.
cost::GpuTimes slowest_of(const std::vector<cost::GpuTimes>& all) {
  cost::GpuTimes slowest;
  for (std::size_t i = 0; i < cost::kNumGpuProbes; ++i) {
    const auto probe = static_cast<cost::GpuProbe>(i);
    for (const cost::GpuTimes& times : all) slowest.set(probe, std::max(slowest[probe], times[probe]));
  }
  return slowest;
}

Result<void> measure(const ProbeSizes& sizes, Group& group, Device& device) {
  const Config& config = group.config();
  Standpoint mine = {.gpu = device.id().index, .probes = probes_of(device, sizes).to_ullong()};
  if (group.rank() == 0) why_not_kept(config).copy(mine.why_not, sizeof(mine.why_not) - 1);
  TANDEM_ASSIGN(const auto all, bootstrap::told_by_all(mine, group, "measure GPUs"));
  if (const std::string why_not = why_not_measured(all, group); !why_not.empty()) {
    log(config.log_level, LogLevel::kInfo,
        fmt::format("{} is not measured: {}", device.description(), why_not));
    return {};
  }
  ProbeSet wanted = all[0].probes;
  for (const Standpoint& one : all) wanted &= ProbeSet(one.probes);
  const auto begin = std::chrono::steady_clock::now();
  TANDEM_ASSIGN(const cost::GpuTimes own, run_probes(wanted, sizes, group, device));
  TANDEM_ASSIGN(const auto times, bootstrap::told_by_all(own, group, "measure GPUs"));
  const cost::GpuTimes slowest = slowest_of(times);
  if (slowest.is_empty()) {
    log(config.log_level, LogLevel::kInfo,
        fmt::format("{} is not measured: a rank lacks the memory", device.description()));
    return {};
  }
  bootstrap::set_gpu_times(group, slowest);
  if (group.rank() != 0) return {};
  log(config.log_level, LogLevel::kInfo,
      fmt::format("measured {} of {} ranks in {}: {}", device.description(), group.size(),
                  time_text(std::chrono::steady_clock::now() - begin),
                  fmt::join(cost::describe_gpu_rates(slowest), "; ")));
  const auto kept = cost::write_gpu_times(config.tune_folder, device.description(), group.size(), slowest);
  if (!kept) log(config.log_level, LogLevel::kWarning, kept.error().text());
  return {};
}

}  // namespace

Result<void> measure_gpus_of(const ProbeSizes& sizes, Group& group, Device& device) {
  const bool shares_memory = group.num_hosts() == 1;
  if (device.id().kind != DeviceKind::kCuda || group.size() == 1 || !shares_memory ||
      !group.gpu_times().is_empty())
    return {};
  auto done = measure(sizes, group, device);
  // The others are measuring, and would wait for this rank.
  if (!done) group.poison(done.error(), group.rank());
  return done;
}

Result<void> measure_gpus(Group& group, Device& device) {
  return measure_gpus_of({}, group, device);
}

}  // namespace tandem::fused
