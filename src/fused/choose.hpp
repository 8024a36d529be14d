#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/device/device.hpp>
#include <tandem/fused/report.hpp>

namespace tandem::fused {

/// What the choice of an algorithm is made from. Every rank has to choose the same, so it holds only what the
/// ranks agree on or find alike: of a gather neither the columns of b, of a scatter not k.
struct Workload {
  DeviceKind kind = DeviceKind::kCpu;
  int world = 1;
  int cores = 1;                     ///< that this process may use; ranks of one host share them
  std::chrono::nanoseconds link{0};  ///< time of a copy from a peer that costs no processor
  std::int64_t chunk_bytes = 0;      ///< one rank's shard or partial
  double chunk_flops = 0;            ///< product of one chunk with a square b
  int pipelined_barriers = 0;
  int serial_barriers = 0;
};

/// Times that the model predicts for one op.
struct Prediction {
  double serial_us = 0;
  double pipelined_us = 0;
};
[[nodiscard]] Prediction predict(const Workload& work);

struct Choice {
  Algorithm algorithm = Algorithm::kSerial;
  std::string reason;
};

/// The algorithm that runs when `asked` is asked for. kAuto takes what is predicted to be faster, serial if
/// neither is. Errors: kUnsupported for an algorithm that this device does not have; nothing is put in its
/// place.
[[nodiscard]] Result<Choice> choose(std::string_view who, Algorithm asked, const Workload& work,
                                    DeviceId device);

}  // namespace tandem::fused
