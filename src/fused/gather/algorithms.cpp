#include "fused/gather/algorithms.hpp"

#include <array>

#include "fused/gather/chunks.hpp"

namespace tandem::fused {
namespace {

Support always(const GatherProblem&, const Device&) {
  return Support::yes();
}

Notes no_notes(const GatherProblem&, const GatherCall&, const Device&) {
  return {};
}

}  // namespace

std::span<const GatherAlgorithm> gather_algorithms() {
  static constexpr std::array kAll = {
      GatherAlgorithm{.name = Algorithm::kSerial,
                      .can_run = &always,
                      .predicted_us = &Prediction::serial_us,
                      .build = &build_serial_gather,
                      .notes = &no_notes},
      GatherAlgorithm{.name = Algorithm::kPipelined,
                      .can_run = &always,
                      .predicted_us = &Prediction::pipelined_us,
                      .build = &build_pipelined_gather,
                      .notes = &no_notes},
      GatherAlgorithm{.name = Algorithm::kNative,
                      .can_run = &can_run_native,
                      .predicted_us = &Prediction::native_us,
                      .build = &build_native_gather,
                      .notes = &native_gather_notes},
  };
  return kAll;
}

}  // namespace tandem::fused
