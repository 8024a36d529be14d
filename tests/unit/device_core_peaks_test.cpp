#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "device/cpu/core_peaks.hpp"

namespace tandem::cpu {
namespace {

/// What the system says that the processor has.
std::set<std::string> flags() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line) && line.rfind("flags", 0) != 0) {
  }
  std::istringstream words(line.substr(std::min(line.size(), line.find(':') + 1)));
  std::set<std::string> flags;
  for (std::string word; words >> word;) flags.insert(word);
  return flags;
}

TEST(CorePeaks, EveryProbeDoesTheProductsThatItCounts) {
  constexpr std::int64_t kRounds = 1000;
  int measured = 0;
  for (const PeakProbe& probe : peak_probes()) {
    SCOPED_TRACE(std::string(probe.name) + " " + std::string(probe.width));
    if (!probe.why_not.empty()) {
      EXPECT_EQ(burst_gops(probe), 0);
      continue;
    }
    ++measured;
    EXPECT_EQ(2 * probe.loop.run(kRounds), probe.loop.ops_per_round * kRounds);
    EXPECT_EQ(probe.loop.run(0), 0);
    EXPECT_GT(burst_gops(probe), 0);
  }
  EXPECT_GE(measured, 1) << "every processor multiplies f32";
}

TEST(CorePeaks, ProbesAreThereWhereTheProcessorHasThem) {
  const std::set<std::string> has = flags();
  const bool avx512 = has.count("avx512f") && has.count("avx512bw") && has.count("avx512vl");
  for (const PeakProbe& probe : peak_probes()) {
    SCOPED_TRACE(std::string(probe.name) + " " + std::string(probe.width));
    bool expected = probe.width == "scalar";
    if (probe.name == "fma_f32" && probe.width == "512") expected = avx512;
    if (probe.name == "fma_f32" && probe.width == "256") expected = has.count("avx2") && has.count("fma");
    if (probe.name == "dot_bf16") expected = avx512 && has.count("avx512_bf16");
    if (probe.name == "dot_u8s8") expected = avx512 && has.count("avx512_vnni");
    EXPECT_EQ(probe.why_not.empty(), expected) << probe.why_not;
    if (probe.width == "amx") {
      EXPECT_EQ(probe.why_not.find("does not measure") != std::string_view::npos, has.count("amx_bf16") == 1);
    }
  }
}

TEST(CorePeaks, AReadOfMemoryReadsAllOfIt) {
  alignas(64) std::uint64_t words[3 * 64];
  std::uint64_t expected = 0;
  for (std::size_t i = 0; i < std::size(words); ++i) {
    words[i] = (i + 1) * 0x9e3779b97f4a7c15U;
    expected += words[i];
  }
  EXPECT_EQ(sum_of_words(std::as_bytes(std::span(words))), expected);
  EXPECT_EQ(sum_of_words({}), 0U);
}

TEST(CorePeaks, AreMeasuredOnceForAllThreads) {
  std::vector<const CorePeaks*> seen(8);
  std::vector<std::thread> threads;
  for (const CorePeaks*& peaks : seen) threads.emplace_back([&peaks] { peaks = &core_peaks(); });
  for (std::thread& thread : threads) thread.join();
  for (const CorePeaks* peaks : seen) EXPECT_EQ(peaks, seen[0]);
  EXPECT_GT(seen[0]->fma_f32, 0);
  EXPECT_EQ(seen[0]->dot_bf16 > 0, flags().count("avx512_bf16") == 1);
}

}  // namespace
}  // namespace tandem::cpu
