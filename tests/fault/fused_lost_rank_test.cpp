#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <tandem/tandem.hpp>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "support/process_ranks.hpp"
#include "support/test_devices.hpp"

// A rank dies or stops at each point that a fused op passes, or between calls, or leaves a call out: every
// other rank gets an error that names it, long before anybody would call it a hang, and can go on using its
// device. Where processes share a GPU they have turns, so ops are slow there.

namespace tandem::testing {
namespace {

using std::chrono::milliseconds;

constexpr Placement kPlacements[] = {{}, {DeviceKind::kCuda, false}, {DeviceKind::kCuda, true}};

/// Whether new work runs on the device, and its result can be read.
bool works(Device& device) {
  constexpr std::int64_t kSize = 1000;
  const auto words = device.allocate_tensor({kSize}, DType::kU32);
  auto stream = device.create_stream();
  if (!words || !stream || !(*stream)->memset32(words->view(), 0, 7, kSize) || !(*stream)->synchronize()) {
    return false;
  }
  std::vector<std::uint32_t> seen(kSize);
  if (!device.copy_to_host(words->view(), seen.data())) return false;
  return std::all_of(seen.begin(), seen.end(), [](std::uint32_t word) { return word == 7; });
}

struct Sizes {
  DType dtype;
  std::int64_t rows;  ///< of a rank's a, or of its part of the result
  std::int64_t k, n;
};

/// The smallest that the kernels take, where GPUs have kernels of their own for it. Rows of a scatter have
/// tiles by owners, those of an all-reduce share them.
Sizes sizes_of(const std::string& op, Algorithm algorithm, const Placement& placement) {
  if (algorithm == Algorithm::kNative && placement.kind == DeviceKind::kCuda)
    return {DType::kBF16, op == "all_reduce" ? 100 : 512, 128, 256};
  return {DType::kF32, 4, 16, 8};
}

/// The call that a rank leaves out, or dies or stops at. On GPUs of their own the others launch it as a
/// graph, unless it is native.
constexpr int kFaultyCall = 3;

/// Runs ops until one fails, and says how. Arguments: op, algorithm, index of the placement, a rank, what
/// becomes of it at its fourth call: "skip", "die", "stop" or nothing; and 1 where native products send the
/// shards, 0 where the copy engine does.
const RankFunction kRun("fused_until_error", [](RankProcess& self) -> Result<void> {
  auto group = self.create_group();
  if (!group) return tl::unexpected(group.error());
  const Placement placement = kPlacements[std::stoi(self.arguments.at(2))];
  const std::string fate = std::stoi(self.arguments.at(3)) == self.rank() ? self.arguments.at(4) : "";
  Config config = test::with_own_products(self.config);
  config.native_pieces = std::stoi(self.arguments.at(5));
  auto device = open_device(placement.device_of(self.rank()), config);
  if (!device) return tl::unexpected(device.error());
  auto stream = (*device)->create_stream();
  if (!stream) return tl::unexpected(stream.error());
  const bool gather = self.arguments.at(0) == "gather";
  const Algorithm algorithm = *parse_algorithm(self.arguments.at(1));
  const int world = self.size();

  const auto [dtype, rows, k, n] = sizes_of(self.arguments.at(0), algorithm, placement);
  test::Guarded a(**device, Dims{gather ? rows : rows * world, k}, dtype);
  test::Guarded b(**device, Dims{k, n}, dtype);
  const bool scatter = self.arguments.at(0) == "scatter";
  test::Guarded out(**device, Dims{scatter ? rows : rows * world, n}, dtype);
  const std::vector<TensorView> as = {a.view()};
  const std::vector<TensorView> bs = {b.view()};
  const std::vector<TensorView> outs = {out.view()};
  for (int round = 0; round < 6; ++round) {
    if (round == kFaultyCall) {
      if (fate == "skip") continue;
      if (fate == "die") ::raise(SIGKILL);
      if (fate == "stop") ::raise(SIGSTOP);
    }
    const auto report =
        gather
            ? fused_all_gather_matmul(
                  {.a = a.view(), .b = bs, .gather_size = rows * world, .out = outs, .algorithm = algorithm},
                  **group, **stream)
        : scatter ? fused_matmul_reduce_scatter({.a = as, .b = bs, .out = out.view(), .algorithm = algorithm},
                                                **group, **stream)
                  : fused_matmul_all_reduce({.a = as, .b = bs, .out = out.view(), .algorithm = algorithm},
                                            **group, **stream);
    Result<void> result;
    if (!report) {
      result = tl::unexpected(report.error());
    } else {
      if (round == kFaultyCall) {
        self.publish("launched", report->as_graph ? "as a graph" : "step by step");
        const bool sends = report->reason.find("in pieces") != std::string::npos;
        self.publish("sent", sends ? "in pieces" : "by copies");
      }
      result = (*stream)->synchronize();
    }
    if (result) continue;
    self.publish("error", result.error().to_string());
    self.publish("device", works(**device) ? "works" : "is broken");
    // Stays until the test has looked: a rank that leaves is another fault.
    (void)self.wait_for("end");
    return {};
  }
  self.publish("error", "none");
  (void)self.wait_for("end");
  return {};
});

struct Fault {
  std::string op;
  std::string algorithm;
  std::string point;
  std::string action;
  int placement = 0;  ///< one of kPlacements
  int world = 2;
  bool in_pieces = false;

  [[nodiscard]] RankCase ranks() const { return {kPlacements[placement], world}; }
};

void PrintTo(const Fault& fault, std::ostream* to) {
  *to << fault.op << " " << fault.algorithm << " " << fault.point << ":" << fault.action << " "
      << to_string(fault.ranks()) << (fault.in_pieces ? " in pieces" : "");
}

class FusedLostRank : public ::testing::TestWithParam<Fault> {};

TEST_P(FusedLostRank, is_named_by_every_other_rank) {
  const Fault& fault = GetParam();
  if (const std::string reason = why_not(fault.ranks()); !reason.empty()) GTEST_SKIP() << reason;
  const int world = fault.world;
  const int victim = world - 1;
  const bool dies = fault.action == "die";
  const bool stops = fault.action == "stop";
  RankOptions options;
  options.config.log_level = LogLevel::kOff;
  options.config.op_timeout = milliseconds(dies ? 30'000 : fault.placement > 0 ? 2'000 : 700);
  const bool is_between_calls = fault.point == "call";
  if (!is_between_calls) {
    options.config.fault = fault.point + ":" + std::to_string(victim) + ":3:" + fault.action;
  }
  ProcessRanks ranks =
      start_process_ranks(world, "fused_until_error",
                          {fault.op, fault.algorithm, std::to_string(fault.placement), std::to_string(victim),
                           is_between_calls ? fault.action : "", fault.in_pieces ? "1" : "0"},
                          options);
  for (int rank = 0; rank < world; ++rank) {
    if (rank == victim) continue;
    const auto error = ranks.published(rank, "error");
    ASSERT_TRUE(error) << error.error().to_string();
    // A death is noticed by itself: after the deadline it would be kTimeout.
    EXPECT_EQ(error->find(dies ? "PeerLost: " : "Timeout: "), 0U) << "rank " << rank << ": " << *error;
    EXPECT_NE(error->find(fmt::format("rank {}", victim)), std::string::npos)
        << "rank " << rank << ": " << *error;
    EXPECT_EQ(ranks.published(rank, "device").value(), "works") << "rank " << rank;
    if (fault.algorithm == "native" && is_between_calls && !dies) {
      EXPECT_EQ(ranks.published(rank, "sent").value(), fault.in_pieces ? "in pieces" : "by copies");
    } else if (is_between_calls && !dies && kPlacements[fault.placement].one_gpu_each) {
      EXPECT_EQ(ranks.published(rank, "launched").value(), "as a graph") << "rank " << rank;
    }
    if (stops) {
      EXPECT_NE(error->find("stopped"), std::string::npos) << "rank " << rank << ": " << *error;
    }
  }
  ranks.announce("end");
  if (stops) ranks.kill(victim);
  const JobOutcome outcome = ranks.wait();
  EXPECT_EQ(outcome.first_failed, dies || stops ? victim : -1);
}

std::vector<Fault> all_faults() {
  std::vector<Fault> all;
  for (const char* point : {"agree", "put", "wait"}) {
    for (const char* action : {"die", "stop"}) {
      for (const char* op : {"gather", "scatter", "all_reduce"}) {
        for (const int world : {2, 4}) all.push_back({op, "native", point, action, 0, world});
      }
    }
  }
  all.push_back({"gather", "native", "call", "skip", 0, 4});
  for (const int placement : {1, 2}) {
    for (const char* action : {"die", "stop"}) {
      for (const char* point : {"agree", "put"})
        all.push_back({"gather", "native", point, action, placement, 2});
    }
    for (const char* action : {"skip", "die", "stop"}) {
      for (const bool in_pieces : {false, true})
        all.push_back({"gather", "native", "call", action, placement, 2, in_pieces});
      for (const char* op : {"scatter", "all_reduce"})
        all.push_back({op, "native", "call", action, placement, 2});
    }
  }
  for (const char* op : {"gather", "scatter", "all_reduce"}) {
    for (const char* algorithm : {"serial", "pipelined"}) {
      for (const char* point : {"agree", "barrier", "get"}) {
        for (const char* action : {"die", "stop"}) {
          // Scatters whose ranks have fewer than two cores each are as native.
          const bool may_be_told = algorithm == std::string("pipelined") && op != std::string("gather") &&
                                   point != std::string("agree");
          // A serial scatter pushes chunks on CPUs.
          const bool puts = op == std::string("scatter") && algorithm == std::string("serial") &&
                            point == std::string("get");
          for (const int world : {2, 4}) {
            if (!may_be_told) all.push_back({op, algorithm, puts ? "put" : point, action, 0, world});
          }
          // Not serial: its collectives are NCCL's there, or read their peers in a kernel, and pass no such
          // point.
          if (algorithm != std::string("pipelined")) continue;
          // Partials are pushed there.
          const bool pushes = op != std::string("gather") && point == std::string("get");
          for (const int placement : {1, 2})
            all.push_back({op, algorithm, pushes ? "put" : point, action, placement, 2});
        }
      }
      all.push_back({op, algorithm, "call", "skip", 0, 4});
      for (const char* action : {"skip", "die", "stop"}) {
        for (const int placement : {1, 2}) all.push_back({op, algorithm, "call", action, placement, 2});
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Points, FusedLostRank, ::testing::ValuesIn(all_faults()), [](const auto& fault) {
  const Fault& f = fault.param;
  return f.op + "_" + f.algorithm + "_" + f.point + "_" + f.action + "_" + to_string(f.ranks()) +
         (f.in_pieces ? "_pieces" : "");
});

}  // namespace
}  // namespace tandem::testing
