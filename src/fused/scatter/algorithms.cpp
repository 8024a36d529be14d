#include "fused/scatter/algorithms.hpp"

#include <array>

namespace tandem::fused {
namespace {

Support always(const ScatterProblem&, const Device&) {
  return Support::yes();
}

}  // namespace

std::span<const ScatterAlgorithm> scatter_algorithms() {
  static constexpr std::array kAll = {
      ScatterAlgorithm{.name = Algorithm::kSerial,
                       .can_run = &always,
                       .predicted_us = &Prediction::serial_us,
                       .build = &build_serial_scatter},
      ScatterAlgorithm{.name = Algorithm::kPipelined,
                       .can_run = &always,
                       .predicted_us = &Prediction::pipelined_us,
                       .build = &build_pipelined_scatter},
  };
  return kAll;
}

}  // namespace tandem::fused
