#pragma once

#include <gtest/gtest.h>

#include <string>
#include <tandem/backend/backend.hpp>
#include <vector>

#include "backend/for_tools.hpp"

namespace tandem::testing {

/// GPUs to test on.
inline int num_test_gpus() {
  static const int num_gpus = [] {
    prepare_shared_gpu();
    return count_cuda_devices();
  }();
  return num_gpus;
}

/// Where the ranks of a test, which are threads, have their devices.
struct Placement {
  DeviceKind kind = DeviceKind::kCpu;
  bool one_gpu_each = false;  ///< otherwise all ranks share GPU 0

  [[nodiscard]] DeviceId device_of(int rank) const { return {kind, one_gpu_each ? rank : 0}; }
};

/// A placement and a number of ranks, as a test's parameter.
struct RankCase {
  Placement placement;
  int size = 1;
};

/// For the name of a test: "cpu_2", "cuda_2" on one GPU, "cuda_each_2" on one GPU a rank.
inline std::string to_string(const RankCase& ranks) {
  const bool is_cpu = ranks.placement.kind == DeviceKind::kCpu;
  const char* const where = is_cpu ? "cpu_" : ranks.placement.one_gpu_each ? "cuda_each_" : "cuda_";
  return where + std::to_string(ranks.size);
}

inline void PrintTo(const RankCase& ranks, std::ostream* out) {
  *out << to_string(ranks);
}

inline std::string case_name(const ::testing::TestParamInfo<RankCase>& info) {
  return to_string(info.param);
}

/// Every size on the CPU, and on the GPUs of this machine in both placements.
inline std::vector<RankCase> rank_cases(const std::vector<int>& sizes) {
  std::vector<RankCase> cases;
  for (const int size : sizes) cases.push_back({{DeviceKind::kCpu}, size});
  for (const int size : sizes) {
    if (num_test_gpus() >= 1) cases.push_back({{DeviceKind::kCuda, false}, size});
    if (size > 1 && num_test_gpus() >= size) cases.push_back({{DeviceKind::kCuda, true}, size});
  }
  return cases;
}

/// Why this machine cannot run a case; empty if it can. For ranks that are processes: each of them lists all
/// tests, and the number of cases must not be a reason to start CUDA there.
inline std::string why_not(const RankCase& ranks) {
  if (ranks.placement.kind == DeviceKind::kCpu) return "";
  const int needed = ranks.placement.one_gpu_each ? ranks.size : 1;
  if (num_test_gpus() >= needed) return "";
  return "needs " + std::to_string(needed) + (needed == 1 ? " GPU" : " GPUs") + ", this machine has " +
         std::to_string(num_test_gpus());
}

}  // namespace tandem::testing
