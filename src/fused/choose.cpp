#include "fused/choose.hpp"

#include <algorithm>

#include "base/format.hpp"

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
constexpr Rates kHopper = {.flops_per_us = 700e6, .copy_bytes_per_us = 360e3, .barrier_us = 5, .chunk_us = 8};

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
  return {.serial_us = peers * link_us + work_us / one_stream + work.serial_barriers * kCore.barrier_us,
          .pipelined_us = std::max(longest_lane_us, work_us / two_streams) + work.world * kCore.chunk_us +
                          work.pipelined_barriers * kCore.barrier_us};
}

// Copy engines work beside the products, which share one processor whatever the stream.
Prediction predict_on_gpu(const Workload& work) {
  const double product_us = work.chunk_flops / kHopper.flops_per_us;
  const double get_us = to_us(work.link) + static_cast<double>(work.chunk_bytes) / kHopper.copy_bytes_per_us;
  const int peers = work.world - 1;
  const double products_us = work.world * product_us;
  const double gets_us = peers * get_us;
  return {.serial_us = products_us + gets_us + work.serial_barriers * kHopper.barrier_us,
          .pipelined_us = std::max(products_us, gets_us + product_us) + work.world * kHopper.chunk_us +
                          work.pipelined_barriers * kHopper.barrier_us};
}

}  // namespace

Prediction predict(const Workload& work) {
  return work.kind == DeviceKind::kCuda ? predict_on_gpu(work) : predict_on_cores(work);
}

Result<Choice> choose(std::string_view who, Algorithm asked, const Workload& work, DeviceId device) {
  switch (asked) {
    case Algorithm::kNative:
      return failf(
          ErrorCode::kUnsupported,
          "{}: algorithm native does not exist on {}: no kernel there consumes its input as it arrives; ask "
          "for auto, pipelined or serial",
          who, to_string(device));
    case Algorithm::kPipelined:
    case Algorithm::kSerial:
      return Choice{asked, "asked for"};
    case Algorithm::kAuto:
      break;
  }
  if (work.world == 1) return Choice{Algorithm::kSerial, "one rank: there is nothing to overlap"};
  const Prediction us = predict(work);
  if (us.pipelined_us < us.serial_us) {
    return Choice{Algorithm::kPipelined,
                  fmt::format("predicted {:.0f} us against {:.0f} us serial", us.pipelined_us, us.serial_us)};
  }
  return Choice{Algorithm::kSerial, fmt::format("predicted {:.0f} us against {:.0f} us pipelined",
                                                us.serial_us, us.pipelined_us)};
}

}  // namespace tandem::fused
