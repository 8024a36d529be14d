#include "fused/scatter/algorithms.hpp"

#include <array>

#include "fused/scatter/native.hpp"

namespace tandem::fused {
namespace {

Support always(const ScatterProblem&, const Device&) {
  return Support::yes();
}

constexpr ScatterAlgorithm kSerial = {.name = Algorithm::kSerial,
                                      .can_run = &always,
                                      .predicted_us = &Prediction::serial_us,
                                      .build = &build_serial_scatter};
constexpr ScatterAlgorithm kPipelined = {.name = Algorithm::kPipelined,
                                         .can_run = &always,
                                         .predicted_us = &Prediction::pipelined_us,
                                         .build = &build_pipelined_scatter};
constexpr ScatterAlgorithm kNative = {.name = Algorithm::kNative,
                                      .can_run = &can_run_native_scatter,
                                      .predicted_us = &Prediction::native_us,
                                      .build = &build_native_scatter};

}  // namespace

std::span<const ScatterAlgorithm> scatter_algorithms() {
  static constexpr std::array kAll = {kSerial, kPipelined, kNative};
  return kAll;
}

std::span<const ScatterAlgorithm> all_reduce_algorithms() {
  static constexpr std::array kAll = {kSerial, kPipelined, kNative};
  return kAll;
}

}  // namespace tandem::fused
