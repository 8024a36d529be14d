#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tandem/base/config.hpp>
#include <tandem/bootstrap/launcher.hpp>
#include <vector>

#include "harness/reference.hpp"
#include "mlp.hpp"

namespace tandem::cli {

/// What the launcher decides and the ranks follow.
struct DemoPlan {
  MlpSizes sizes;
  MlpTypes types;
  int slices = 1;  ///< into which the whole layer's intermediate dimension is cut; each rank has one
  double seconds = 20;
  int link_delay_us = -1;  ///< of the simulated link; 0: none; -1: by how long the product takes
  std::string scale;
  std::string why;
};

/// One table: both algorithms with or without a simulated link. Links between hosts are there: nothing is
/// simulated beside them.
struct DemoPhase {
  const char* name;
  std::int64_t link_delay_us;
};

/// What a phase times, in turns.
constexpr const char* kDemoVariants[] = {"serial", "overlapped", "products"};

/// One rank's demo: all phases on the same weights, every run compared with the first serial one.
class DemoRank {
 public:
  DemoRank(const DemoPlan& plan, const RankContext& context, const Config& config);
  nlohmann::json run();

 private:
  nlohmann::json run_phase(const DemoPhase& phase);
  /// Throws exit 4 for a simulated link that is asked for where there is a real one.
  void check_link(const Session& session) const;
  MlpTimes run_once(Mlp& mlp, const char* variant, const DemoPhase& phase);
  /// How each op overlaps here: as `auto` would run it, or where that stays serial, as `pipelined`.
  MlpAlgorithms choose_overlap(Mlp& mlp, const DemoPhase& phase, nlohmann::json& result);
  /// Samples against f64; what is right becomes the bits that every later run must have.
  void accept_first(const Mlp& mlp, const Session& session);
  void compare_bits(const Mlp& mlp, const char* variant, const DemoPhase& phase);
  void say(const std::string& text) const;

  DemoPlan plan_;
  const RankContext& context_;
  Config config_;
  MlpWeights weights_;
  MlpAlgorithms overlapped_;
  std::vector<std::vector<std::byte>> first_bits_;
  harness::Wrong wrong_;
  double worst_error_ = 0;
  std::int64_t num_compared_ = 0;
  double serial_gather_us_ = 0;
};

/// What a phase measured: the median over the rounds. A step lasts from the end of the step before it on the
/// last rank to its own end on the last rank, so that no wait for a late rank is counted twice.
class DemoTimes {
 public:
  DemoTimes(const std::vector<nlohmann::json>& results, std::size_t phase);
  [[nodiscard]] double serial_us(int step) const { return us_[0][static_cast<std::size_t>(step)]; }
  [[nodiscard]] double overlapped_us(int step) const { return us_[1][static_cast<std::size_t>(step)]; }
  /// The step without its communication.
  [[nodiscard]] double products_us(int step) const { return us_[2][static_cast<std::size_t>(step)]; }
  [[nodiscard]] double speedup(int step) const { return serial_us(step) / overlapped_us(step); }
  /// The part of what serial takes beyond the products that overlapped does not: 1 hides all of it. Null
  /// where that is at most 1 % of serial: nothing is to be hidden.
  [[nodiscard]] std::optional<double> hidden(int step) const;

 private:
  std::array<std::array<double, kNumMlpSteps>, std::size(kDemoVariants)> us_;
};

}  // namespace tandem::cli
