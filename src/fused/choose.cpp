#include "fused/choose.hpp"

#include <algorithm>

#include "base/format.hpp"

namespace tandem::fused {
namespace {

// Of one core, from docs/design/schedules.md. Only their ratio to each other and to the link matters.
constexpr double kFlopsPerUs = 40'000;
constexpr double kCopyBytesPerUs = 10'000;
/// A meeting of all ranks, and what a product loses by being cut into chunks, each.
constexpr double kBarrierUs = 20;
constexpr double kChunkUs = 10;

}  // namespace

Prediction predict(const Workload& work) {
  // What one rank has of a processor: at most one core a stream, less where ranks share the cores.
  const double cores = static_cast<double>(work.cores) / work.world;
  const double one_stream = std::min(1.0, cores);
  const double two_streams = std::min(2.0, cores);
  const double product_us = work.chunk_flops / kFlopsPerUs;
  const double copy_us = static_cast<double>(work.chunk_bytes) / kCopyBytesPerUs;
  const double link_us = std::chrono::duration<double, std::micro>(work.link).count();
  const int peers = work.world - 1;

  const double work_us = work.world * product_us + peers * copy_us;
  // The side stream takes the odd steps; a step on a stream of its own is a link's wait, a copy and a
  // product.
  const int side_steps = work.world / 2;
  const int own_steps = peers - side_steps;
  const double step_us = link_us + (copy_us + product_us) / one_stream;
  const double longest_lane_us =
      std::max(side_steps * step_us, own_steps * step_us + product_us / one_stream);
  return {.serial_us = peers * link_us + work_us / one_stream + work.serial_barriers * kBarrierUs,
          .pipelined_us = std::max(longest_lane_us, work_us / two_streams) + work.world * kChunkUs +
                          work.pipelined_barriers * kBarrierUs};
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
