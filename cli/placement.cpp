#include "placement.hpp"

#include <fmt/format.h>

#include "failure.hpp"
#include "rank_job.hpp"

namespace tandem::cli {
namespace {

constexpr const char* kPlacementKey = "placement";

}  // namespace

Placement place(const Machine& machine, const std::string& backend, bool loopback, int ranks) {
  const auto num_gpus = static_cast<int>(machine.gpus.size());
  if (backend != "auto" && backend != "cpu" && backend != "cuda") {
    bad_input(fmt::format("--backend '{}': need auto, cpu or cuda", backend));
  }
  if (loopback && backend == "cpu") bad_input("--loopback is for GPUs: leave out --backend cpu");
  if (backend == "cuda" || loopback) {
    if (num_gpus == 0) not_supported(fmt::format("backend cuda: {}; use --backend cpu", machine.why_no_gpu));
  } else if (backend == "cpu" || num_gpus == 0) {
    return {};
  }
  if (machine.launched_ranks > 0 && loopback) {
    bad_input(
        fmt::format("--loopback: its ranks are threads of one process, and {} has started several; leave out "
                    "--loopback or the launcher",
                    machine.launcher));
  }
  const int ranks_here = machine.ranks_here(ranks);
  if (machine.launched_ranks > 0 && ranks_here > num_gpus) {
    not_supported(
        fmt::format("backend cuda: {} has started {} ranks{}, and rank 0 sees {} GPU{}: let each rank see "
                    "all GPUs and start at most one rank for each, or use --backend cpu",
                    machine.launcher, ranks_here, ranks_here < ranks ? " on this host" : "", num_gpus,
                    num_gpus == 1 ? "" : "s"));
  }
  return {DeviceKind::kCuda, num_gpus, loopback || ranks_here > num_gpus};
}

std::string backend_and_why(const Machine& machine, const Placement& placement, const std::string& backend,
                            int ranks) {
  if (placement.kind == DeviceKind::kCpu) {
    return fmt::format("cpu ({})", backend == "cpu" ? "asked for" : machine.why_no_gpu);
  }
  const std::string& name = machine.gpus.front();
  if (placement.loopback) {
    return fmt::format("cuda ({}; loopback: {} ranks are threads on GPU 0, which says nothing about speed)",
                       name, ranks);
  }
  return fmt::format("cuda ({} of {} {}: one a rank)", machine.ranks_here(ranks), placement.num_gpus, name);
}

void send_placement(Store& store, const Placement& placement) {
  send_to_ranks(store, kPlacementKey,
                {{"cuda", placement.kind == DeviceKind::kCuda},
                 {"num_gpus", placement.num_gpus},
                 {"loopback", placement.loopback}});
}

Placement receive_placement(const RankContext& context) {
  const nlohmann::json json = receive(context, kPlacementKey);
  return {json.at("cuda").get<bool>() ? DeviceKind::kCuda : DeviceKind::kCpu, json.at("num_gpus").get<int>(),
          json.at("loopback").get<bool>()};
}

}  // namespace tandem::cli
