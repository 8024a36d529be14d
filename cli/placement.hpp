#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/launcher.hpp>

#include "machine.hpp"

namespace tandem::cli {

/// Where the ranks of a job run. The launcher decides; each rank receives it.
struct Placement {
  DeviceKind kind = DeviceKind::kCpu;
  int num_gpus = 0;
  /// All ranks are threads of one process and share GPU 0: correct, but no measure of speed.
  bool loopback = false;

  /// `local_rank`: the number of the rank among those of its host.
  [[nodiscard]] DeviceId device_of(int local_rank) const {
    if (kind == DeviceKind::kCpu) return {DeviceKind::kCpu, 0};
    return {DeviceKind::kCuda, loopback ? 0 : local_rank % num_gpus};
  }
  /// Whether an element of a product has the same bits however many rows are computed at once: true of
  /// tandem's own kernels, not of a vendor's library.
  [[nodiscard]] bool has_same_bits() const { return kind == DeviceKind::kCpu; }
  /// Whether what ranks send each other takes a way of its own.
  [[nodiscard]] bool has_link() const { return kind == DeviceKind::kCuda && !loopback; }
  /// "no link: copies run inside the ranks' own cores".
  [[nodiscard]] std::string link_in_words() const {
    if (kind == DeviceKind::kCpu) return "no link: copies run inside the ranks' own cores";
    return loopback ? "no link: copies run inside one GPU" : "copies run over the GPUs' links";
  }
};

/// Where `ranks` ranks run on this machine. `backend`: auto, cpu or cuda. Throws exit 4 for cuda without a
/// GPU.
[[nodiscard]] Placement place(const Machine& machine, const std::string& backend, bool loopback, int ranks);
/// "cuda (4 of 8 NVIDIA H200, one a rank)", "cuda (NVIDIA H200, loopback: 4 ranks are threads on GPU 0)",
/// "cpu (no GPU driver found)".
[[nodiscard]] std::string backend_and_why(const Machine& machine, const Placement& placement,
                                          const std::string& backend, int ranks);

void send_placement(Store& store, const Placement& placement);
[[nodiscard]] Placement receive_placement(const RankContext& context);

}  // namespace tandem::cli
