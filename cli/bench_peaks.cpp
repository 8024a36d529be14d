#include "bench_peaks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <span>

#include "device/cpu/core_peaks.hpp"
#include "failure.hpp"
#include "harness/stopwatch.hpp"
#include "pinned.hpp"
#include "row_file.hpp"
#include "timing.hpp"

namespace tandem::cli {
namespace {

constexpr double kRoundUs = 1000;
constexpr int kBurstsOfRound = 32;  // about as long

/// Bytes of the first core's cache of this level; 0 where the system does not say.
std::int64_t cache_bytes(int level) {
  for (int idx = 0; idx < 8; ++idx) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", idx);
    int found = 0;
    std::string type;
    std::int64_t size = 0;
    char unit = ' ';
    if (!(std::ifstream(folder + "level") >> found) || !(std::ifstream(folder + "type") >> type)) continue;
    if (found != level || type == "Instruction") continue;
    if (!(std::ifstream(folder + "size") >> size >> unit)) continue;
    return size * (unit == 'K' ? 1 << 10 : unit == 'M' ? 1 << 20 : 1);
  }
  return 0;
}

/// Memory of one thread.
class Memory {
 public:
  explicit Memory(std::int64_t size) : bytes_(static_cast<std::byte*>(std::aligned_alloc(kPage, size))) {
    if (bytes_ == nullptr)
      throw Failure(kFailed, Error(ErrorCode::kOutOfMemory, fmt::format("bench peaks: no {} bytes", size)));
    std::memset(bytes_.get(), 1, static_cast<std::size_t>(size));
  }
  [[nodiscard]] std::span<std::byte> first(std::int64_t size) const {
    return {bytes_.get(), static_cast<std::size_t>(size)};
  }

  static constexpr std::int64_t kPage = 4096;

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
};

/// What is measured, on one thread or on several at once.
struct Probe {
  std::string name;
  std::string form;        ///< width of the registers, or the level of memory
  std::int64_t bytes = 0;  ///< that a thread touches
  std::string unit;
  std::string why_not;  ///< empty where it can be measured
  std::function<double(Memory&)>
      one_round;  ///< 10^9 a second of the calling thread, over about a millisecond
};

/// What keeps the compiler from leaving out reads whose sum nobody wants.
volatile std::uint64_t sum_sink;

double read_all(std::span<std::byte> bytes) {
  sum_sink = tandem::cpu::sum_of_words(bytes);
  return static_cast<double>(bytes.size());
}

double write_all(std::span<std::byte> bytes) {
  static volatile int value = 2;
  std::memset(bytes.data(), value, bytes.size());
  return static_cast<double>(bytes.size());
}

/// From one half to the other; what is copied counts once.
double copy_half(std::span<std::byte> bytes) {
  const std::size_t half = bytes.size() / 2;
  std::memcpy(bytes.data(), bytes.data() + half, half);
  return static_cast<double>(half);
}

using Touch = double (*)(std::span<std::byte>);

/// Once untimed, which brings the bytes as near as they get.
double rate_of(Touch touch, std::span<std::byte> bytes) {
  touch(bytes);
  double amount = 0;
  double us = 0;
  const double begin = harness::thread_cpu_us();
  while (us < kRoundUs) {
    amount += touch(bytes);
    us = harness::thread_cpu_us() - begin;
  }
  return amount / us * 1e-3;
}

std::vector<Probe> instruction_probes() {
  std::vector<Probe> probes;
  for (const tandem::cpu::PeakProbe& each : tandem::cpu::peak_probes()) {
    const auto one_round = [&each](Memory&) {
      double best = 0;
      for (int burst = 0; burst < kBurstsOfRound; ++burst) best = std::max(best, burst_gops(each));
      return best;
    };
    probes.push_back({std::string(each.name), std::string(each.width), 0,
                      each.name == "dot_u8s8" ? "GOP/s" : "GFLOP/s", std::string(each.why_not), one_round});
  }
  return probes;
}

/// How much of each level each of so many threads touches.
std::vector<Probe> memory_probes(int threads) {
  constexpr std::int64_t kLeastOfDram = std::int64_t{64} << 20;
  const std::int64_t l2 = cache_bytes(2);
  const std::int64_t l3 = cache_bytes(3);
  struct Level {
    const char* name;
    std::int64_t bytes;
    std::string why_not;
  };
  const std::int64_t of_l3 = l3 / 4 / threads;
  const Level levels[] = {
      {"L2", l2 / 2, l2 == 0 ? "the system does not say how large it is" : ""},
      {"L3", of_l3,
       l3 == 0       ? "the system does not say how large it is"
       : of_l3 <= l2 ? "a thread's share is no larger than its L2"
                     : ""},
      {"DRAM", std::max(kLeastOfDram, 4 * l3 / threads), ""},
  };
  constexpr std::pair<const char*, Touch> kTouches[] = {
      {"read", read_all}, {"write", write_all}, {"copy", copy_half}};
  std::vector<Probe> probes;
  for (const auto& [name, touch] : kTouches) {
    for (const Level& level : levels) {
      const std::int64_t bytes = level.bytes / Memory::kPage * Memory::kPage;
      probes.push_back(
          {name, level.name, bytes, "GB/s", level.why_not,
           [touch = touch, bytes](Memory& memory) { return rate_of(touch, memory.first(bytes)); }});
    }
  }
  return probes;
}

class Peaks {
 public:
  Peaks(const PeaksBench& flags, const Invocation& invocation, const JobPlace& place)
      : flags_(flags), invocation_(invocation), place_(place), file_(flags.json) {}

  int run() {
    const std::vector<int> cores = allowed_cores();
    fmt::print("# tandem bench peaks, {}, {}\n", date_utc(), invocation_.machine.cpu_model);
    fmt::print("# best and median of {} rounds of about 1 ms, in turns; copied bytes count once\n",
               flags_.iterations);
    fmt::print("#{:>10} {:>7} {:>12} {:>6} {:>9} {:>9} {}\n", "what", "form", "bytes each", "cores", "best",
               "median", "unit");
    measure({cores.back()});
    if (flags_.all_cores && cores.size() > 1) measure(cores);
    return kOk;
  }

 private:
  void measure(const std::vector<int>& cores) {
    std::vector<Probe> probes = instruction_probes();
    for (Probe& probe : memory_probes(static_cast<int>(cores.size()))) probes.push_back(std::move(probe));
    std::int64_t most = Memory::kPage;
    for (const Probe& probe : probes) most = std::max(most, probe.bytes);
    std::vector<Memory> memories;
    for (std::size_t i = 0; i < cores.size(); ++i) memories.emplace_back(most);
    std::vector<std::vector<double>> rates(probes.size());
    for (int round = -flags_.warmup; round < flags_.iterations; ++round) {
      for (std::size_t i = 0; i < probes.size(); ++i) {
        if (!probes[i].why_not.empty()) continue;
        std::vector<double> of_cores(cores.size());
        run_at_once(cores, [&](std::size_t core) { of_cores[core] = probes[i].one_round(memories[core]); });
        if (round >= 0) rates[i].push_back(std::accumulate(of_cores.begin(), of_cores.end(), 0.0));
      }
    }
    for (std::size_t i = 0; i < probes.size(); ++i) report(probes[i], cores, rates[i]);
  }

  void report(const Probe& probe, const std::vector<int>& cores, const std::vector<double>& rates) const {
    nlohmann::json row = {{"op", "peaks"},    {"what", probe.name}, {"form", probe.form},
                          {"bytes", nullptr}, {"on_cores", cores},  {"unit", probe.unit},
                          {"best", nullptr},  {"median", nullptr},  {"why_not", nullptr}};
    if (probe.bytes > 0) row["bytes"] = probe.bytes;
    const std::string bytes = probe.bytes > 0 ? std::to_string(probe.bytes) : "-";
    if (rates.empty()) {
      row["why_not"] = probe.why_not;
      fmt::print(" {:>10} {:>7} {:>12} {:>6} {:>9} {:>9} {}: {}\n", probe.name, probe.form, bytes,
                 cores.size(), "-", "-", probe.unit, probe.why_not);
    } else {
      const double best = *std::max_element(rates.begin(), rates.end());
      row["best"] = best;
      row["median"] = harness::median(rates);
      fmt::print(" {:>10} {:>7} {:>12} {:>6} {:>9.1f} {:>9.1f} {}\n", probe.name, probe.form, bytes,
                 cores.size(), best, harness::median(rates), probe.unit);
    }
    add_circumstances(row, invocation_, place_);
    file_.append(row);
  }

  const PeaksBench& flags_;
  const Invocation& invocation_;
  const JobPlace& place_;
  RowFile file_;
};

}  // namespace

int bench_peaks(const PeaksBench& flags, const Invocation& invocation, const JobPlace& place) {
  return Peaks(flags, invocation, place).run();
}

}  // namespace tandem::cli
