// The lists of algorithms: which entry runs, how much workspace a list needs, what it predicts. One algorithm
// is an entry of the test.
#include "coll/algorithms.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <tandem/coll/collectives.hpp>
#include <vector>

#include "coll/backend.hpp"
#include "coll/steps.hpp"
#include "support/guarded_bytes.hpp"
#include "support/symm_rank.hpp"

namespace tandem::testing {
namespace {

using coll::Algorithms;
using coll::Answer;
using coll::EndBarrier;
using coll::GatherAlgorithm;
using coll::GatherCall;
using coll::Problem;

template <class Args>
std::vector<std::string> texts_of(Algorithms<Args> all, const Problem& problem, const Device& device) {
  std::vector<std::string> texts;
  for (const auto& algorithm : all) {
    const Answer answer = algorithm.can_run(problem, device);
    texts.push_back(std::string(algorithm.name) + (answer ? "" : std::string(": ") + answer.why_not));
  }
  return texts;
}

using Texts = std::vector<std::string>;

class UpToFourLayers final : public coll::Backend {
 public:
  Result<void> reduce_stack(const coll::ReduceStackArgs&, Stream&) override { return {}; }
  [[nodiscard]] int max_layers() const override { return 4; }
};

TEST(CollAlgorithms, SayWhyTheyCannotRun) {
  const auto device = open_device({DeviceKind::kCpu, 0}, Config{}).value();
  const auto scatter = [&](int world) {
    return texts_of(coll::algorithms_of(*device).scatter, {.world = world}, *device);
  };
  EXPECT_EQ(texts_of(coll::algorithms_of(*device).gather, {.world = 2}, *device), (Texts{"copies"}));
  const auto all_reduce = [&](std::int64_t bytes) {
    return texts_of(coll::algorithms_of(*device).all_reduce, {.whole_bytes = bytes, .world = 2}, *device);
  };
  EXPECT_EQ(all_reduce(65'536), (Texts{"wholes", "parts"}));
  EXPECT_EQ(all_reduce(65'537), (Texts{"wholes: the input is large", "parts"}));
  EXPECT_EQ(scatter(2), (Texts{"in_place: kernels cannot read memory of peers", "copies"}));
  device->attach<coll::Backend>(std::make_shared<UpToFourLayers>());
  EXPECT_EQ(scatter(4), (Texts{"in_place", "copies"}));
  EXPECT_EQ(scatter(5), (Texts{"in_place: more ranks than a sum has layers", "copies"}));
}

// An input of 100 bytes is published in 128. A stack is needed where no kernel sums in place.
TEST(CollAlgorithms, NeedWhatTheFirstThatSurelyRunsNeeds) {
  const auto device = open_device({DeviceKind::kCpu, 0}, Config{}).value();
  const TensorView whole = TensorView::contiguous(nullptr, {25}, DType::kF32);
  EXPECT_EQ(coll::all_gather_workspace_bytes(whole, 4, *device), 28);
  EXPECT_EQ(coll::reduce_scatter_workspace_bytes(whole, 4, *device), 128 + 4 * 28);
  device->attach<coll::Backend>(std::make_shared<UpToFourLayers>());
  EXPECT_EQ(coll::reduce_scatter_workspace_bytes(whole, 4, *device), 128);
  EXPECT_EQ(coll::reduce_scatter_workspace_bytes(whole, 5, *device), 128 + 5 * 20);
}

// Whole inputs of 100 bytes; or 30,000 rows in 4 parts, which are scattered as they are, and gathered in the
// output's type.
TEST(CollAlgorithms, AllReducesNeedWhatTheirStepsNeed) {
  const auto device = open_device({DeviceKind::kCpu, 0}, Config{}).value();
  const TensorView small = TensorView::contiguous(nullptr, {25}, DType::kF32);
  EXPECT_EQ(coll::all_reduce_workspace_bytes(small, DType::kF32, 4, *device), 128 + 4 * 100);
  const TensorView large = TensorView::contiguous(nullptr, {30'000}, DType::kF32);
  EXPECT_EQ(coll::all_reduce_workspace_bytes(large, DType::kBF16, 4, *device), 120'000 + 4 * 30'000);
  device->attach<coll::Backend>(std::make_shared<UpToFourLayers>());
  const TensorView narrow = TensorView::contiguous(nullptr, {50'000}, DType::kBF16);
  EXPECT_EQ(coll::all_reduce_workspace_bytes(narrow, DType::kF32, 1, *device), 200'000);
  EXPECT_EQ(coll::all_reduce_workspace_bytes(narrow, DType::kBF16, 1, *device), 100'032);
}

// Takes shards of 8 bytes, of groups that it connects to.
std::atomic<int> num_runs = 0;
std::atomic<bool> connects = false;
const GatherAlgorithm kOfTest = {
    .name = "of test",
    .can_run =
        [](const Problem& problem, const Device&) {
          return problem.part_bytes == 8 ? Answer::yes() : Answer::no("not 8 bytes");
        },
    .connect = [](const Problem&, Group&, Stream&) -> Result<Answer> {
      return connects ? Answer::yes() : Answer::no("not connected");
    },
    .workspace_bytes = [](const Problem&, const Device&) -> std::int64_t { return 4096; },
    .predicted_us =
        [](const Problem& problem, const cost::GpuRates& /*gpu*/) {
          return 0.5 * static_cast<double>(problem.whole_bytes);
        },
    .run = [](const GatherCall& args, const EndBarrier& end, Stream& stream) -> Result<void> {
      ++num_runs;
      EXPECT_GE(end.workspace.buffer_size_bytes(), 4096);
      return coll::kGatherByCopies.run(args, end, stream);
    }};

class BackendOfTest final : public coll::Backend {
 public:
  Result<void> reduce_stack(const coll::ReduceStackArgs&, Stream&) override { return {}; }
  [[nodiscard]] coll::AlgorithmLists algorithms() const override {
    static const std::array kGathers = {kOfTest, coll::kGatherByCopies};
    coll::AlgorithmLists all = Backend::algorithms();
    all.gather = kGathers;
    return all;
  }
};

Result<void> gather_and_check(SymmRank& rank, std::int64_t shard_elements) {
  GuardedBytes input({shard_elements}, DType::kI32);
  GuardedBytes output({rank.size() * shard_elements}, DType::kI32);
  const TensorView in = input.view({shard_elements}, DType::kI32);
  const TensorView out = output.view({rank.size() * shard_elements}, DType::kI32);
  for (std::int64_t i = 0; i < in.numel(); ++i) in.data_as<std::int32_t>()[i] = 100 * rank.rank() + 1;
  if (auto done = coll::all_gather({.input = in, .output = out}, rank.group, *rank.stream); !done)
    return done;
  if (auto done = rank.finish(); !done) return done;
  for (std::int64_t i = 0; i < out.numel(); ++i)
    EXPECT_EQ(out.data_as<std::int32_t>()[i], 100 * (i / shard_elements) + 1);
  EXPECT_TRUE(output.guards_are_whole());
  return {};
}

int num_runs_of(std::int64_t shard_elements) {
  num_runs = 0;
  expect_ok(run_symm_ranks(2, {}, [&](SymmRank& rank) {
    rank.device->attach<coll::Backend>(std::make_shared<BackendOfTest>());
    return gather_and_check(rank, shard_elements);
  }));
  return num_runs;
}

TEST(CollAlgorithms, AreOneEntryEach) {
  connects = true;
  EXPECT_EQ(num_runs_of(2), 2);
  EXPECT_EQ(num_runs_of(3), 0) << "it refuses";
  connects = false;
  EXPECT_EQ(num_runs_of(2), 0) << "it does not connect";
}

TEST(CollAlgorithms, ArePredictedAsIfTheyConnected) {
  connects = false;
  const auto device = open_device({DeviceKind::kCpu, 0}, Config{}).value();
  EXPECT_FALSE(coll::predicted_us(coll::Collective::kAllGather, 8, 3, *device)) << "no model on CPUs";
  device->attach<coll::Backend>(std::make_shared<BackendOfTest>());
  EXPECT_EQ(coll::predicted_us(coll::Collective::kAllGather, 8, 3, *device), 12);
  EXPECT_FALSE(coll::predicted_us(coll::Collective::kAllGather, 9, 3, *device));
  EXPECT_FALSE(coll::predicted_us(coll::Collective::kReduceScatter, 8, 3, *device));
}

}  // namespace
}  // namespace tandem::testing
