// What low-contention collectives leave to multiprocessors, counted on simulated GPUs: nothing of the copies
// and barriers, and of a sum one kernel.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tandem/base/shard.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/timeline/timeline.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "coll/backend.hpp"
#include "simulated_gpu/launch.hpp"
#include "support/symm_rank.hpp"

namespace tandem::testing {
namespace {

constexpr int kWorld = 2;
const RankCase kOneGpuEach = {{DeviceKind::kCuda, true}, kWorld};

/// Kernels of one call on all ranks, behind a first call, which prepares.
int kernels_of(SymmRank& rank, const std::function<Result<void>()>& call) {
  for (int i = 0; i < 2; ++i) expect_ok(call());
  expect_ok(rank.finish());
  expect_ok(rank.group.all_gather({}, "all are done").map([](const auto&) {}));
  const int before = simulated::num_kernels();
  static_cast<void>(simulated::largest_grid());
  expect_ok(rank.group.all_gather({}, "all have counted").map([](const auto&) {}));
  expect_ok(call());
  expect_ok(rank.finish());
  expect_ok(rank.group.all_gather({}, "all are done again").map([](const auto&) {}));
  return simulated::num_kernels() - before;
}

TEST(CollCopyEngines, AGatherRunsNoKernel) {
  expect_ok(run_symm_ranks(kOneGpuEach, {}, [](SymmRank& rank) -> Result<void> {
    for (const bool symmetric : {false, true}) {
      for (const int dim : {0, 1}) {
        const Dims sizes = dim == 0 ? Dims{64, 48} : Dims{32, 96};
        const Tensor input = rank.empty({32, 48});
        const auto handle = symmetric ? rank.meet(input) : nullptr;
        const Tensor output = rank.device->allocate_tensor(sizes, DType::kF32).value();
        EXPECT_EQ(kernels_of(rank,
                             [&] {
                               return coll::low_contention_all_gather({.input = input.view(),
                                                                       .output = output.view(),
                                                                       .gather_dim = dim,
                                                                       .input_handle = handle},
                                                                      rank.group, *rank.stream);
                             }),
                  0)
            << "along " << dim << (symmetric ? ", symmetric" : "");
      }
    }
    return {};
  }));
}

TEST(CollCopyEngines, AScatterRunsItsSumAlone) {
  expect_ok(run_symm_ranks(kOneGpuEach, {}, [](SymmRank& rank) -> Result<void> {
    const Tensor input = rank.device->allocate_tensor({512, 1024}, DType::kF32).value();
    for (const int dim : {0, 1}) {
      const Tensor output =
          rank.device->allocate_tensor(dim == 0 ? Dims{256, 1024} : Dims{512, 512}, DType::kF32).value();
      EXPECT_EQ(kernels_of(rank,
                           [&] {
                             return coll::low_contention_reduce_scatter(
                                 {.input = input.view(), .output = output.view(), .scatter_dim = dim},
                                 rank.group, *rank.stream);
                           }),
                kWorld)
          << "a sum a rank, along " << dim;
      EXPECT_LE(simulated::largest_grid(), 132U) << "a block for each multiprocessor";
    }
    return {};
  }));
}

// The front end of a GPU waits for ever: the host that waits for the stream ends that, and says for whom.
TEST(CollCopyEngines, AWaitWithoutAKernelHasADeadline) {
  Config config;
  config.op_timeout = std::chrono::milliseconds(400);
  static_cast<void>(run_symm_ranks(kOneGpuEach, config, [](SymmRank& rank) -> Result<void> {
    const Tensor input = rank.device->allocate_tensor({8, 8}, DType::kF32).value();
    const Tensor output = rank.device->allocate_tensor({16, 8}, DType::kF32).value();
    const auto gather = [&] {
      return coll::low_contention_all_gather({.input = input.view(), .output = output.view()}, rank.group,
                                             *rank.stream);
    };
    expect_ok(gather());
    expect_ok(rank.finish());
    expect_ok(rank.group.all_gather({}, "both are done").map([](const auto&) {}));
    if (rank.rank() == 0) {
      expect_ok(gather());
      const auto finished = rank.finish();
      expect_error(finished, ErrorCode::kTimeout, "rank 1");
      expect_error(finished, ErrorCode::kTimeout, "barrier");
    } else {
      std::this_thread::sleep_for(std::chrono::seconds(2));
      EXPECT_FALSE(rank.group.status()) << "the group has ended with the other rank's error";
    }
    return {};
  }));
}

/// What a gather on such ranks says of its barriers, and the texts of its steps.
std::pair<std::string, std::string> barriers_of(const RankCase& ranks) {
  std::pair<std::string, std::string> said;
  expect_ok(run_symm_ranks(ranks, {}, [&](SymmRank& rank) -> Result<void> {
    const auto timeline = Timeline::create(*rank.device, 100).value();
    rank.group.set_timeline(timeline);
    const Tensor input = rank.device->allocate_tensor({8, 8}, DType::kF32).value();
    const Tensor output = rank.device->allocate_tensor({16, 8}, DType::kF32).value();
    expect_ok(coll::low_contention_all_gather({.input = input.view(), .output = output.view()}, rank.group,
                                              *rank.stream));
    expect_ok(rank.finish());
    const auto noted = timeline->take(rank.group.rank());
    expect_ok(noted.map([](const auto&) {}));
    if (rank.group.rank() != 0) return {};
    said.first = coll::low_contention_barriers(rank.group, *rank.stream).value();
    for (const trace::Event& event : noted->events) {
      const std::string_view step = noted->text(event.step);
      if (step.find("barrier") != std::string_view::npos) said.second += std::string(step) + "\n";
    }
    return {};
  }));
  return said;
}

TEST(CollCopyEngines, SayWhatTheirBarriersAre) {
  const auto own = barriers_of(kOneGpuEach);
  EXPECT_EQ(own.first, "stream operations");
  EXPECT_EQ(own.second, "cur: barrier 5 by stream operations\ncur: barrier 4 by stream operations\n");
  const auto shared = barriers_of({{DeviceKind::kCuda, false}, kWorld});
  EXPECT_EQ(shared.first, "kernels");
  EXPECT_EQ(shared.second, "cur: barrier 5\ncur: barrier 4\n");
  EXPECT_EQ(barriers_of({{DeviceKind::kCpu}, kWorld}).first, "cores");
}

TEST(CollCopyEngines, RefuseStridesThatTheyDoNotTake) {
  expect_ok(run_symm_ranks(kOneGpuEach, {}, [](SymmRank& rank) -> Result<void> {
    const Tensor memory = rank.device->allocate_tensor({100, 90}, DType::kF32).value();
    const Tensor output = rank.device->allocate_tensor({2, 80, 90}, DType::kF32).value();
    TensorView turned = memory.view().narrow(0, 0, 90);
    turned.sizes = {1, 80, 90};
    turned.strides = {1, 1, 90};  // columns: 80 copies of 90 single elements
    expect_error(
        coll::low_contention_all_gather({.input = turned, .output = output.view()}, rank.group, *rank.stream),
        ErrorCode::kUnsupported, "copy engines do not take these strides");
    return {};
  }));
}

}  // namespace
}  // namespace tandem::testing
