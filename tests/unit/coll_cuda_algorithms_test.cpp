// Which algorithms of GPUs can run which problem, and what the first of them takes. Needs no GPU.
#include "coll/cuda/algorithms.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "coll/cuda/addresses.hpp"
#include "coll/cuda/mailboxes.hpp"
#include "cost/transfers.hpp"
#include "support/symm_rank.hpp"

namespace tandem::coll::cuda {
namespace {

constexpr std::int64_t kMost = Mailboxes::kMostBytes;

// With the backend of a CPU, whose kernels do not read memory of peers.
class CollCudaAlgorithms : public ::testing::Test {
 protected:
  template <class Args>
  std::string texts_of(Algorithms<Args> all, const Problem& problem) const {
    std::string texts;
    for (const Algorithm<Args>& algorithm : all) {
      const Answer answer = algorithm.can_run(problem, *device_);
      if (!texts.empty()) texts += "; ";
      texts += algorithm.name;
      if (!answer) texts += std::string(": ") + answer.why_not;
    }
    return texts;
  }
  [[nodiscard]] std::string gather(const Problem& problem) const {
    return texts_of(algorithms().gather, problem);
  }
  [[nodiscard]] std::string scatter(const Problem& problem) const {
    return texts_of(algorithms().scatter, problem);
  }

  std::unique_ptr<Device> device_ = open_device({DeviceKind::kCpu, 0}, Config{}).value();
};

TEST_F(CollCudaAlgorithms, SayWhyTheyCannotRun) {
  EXPECT_EQ(gather({.part_bytes = kMost, .world = 16}), "mailboxes; published; nccl; copies");
  EXPECT_EQ(gather({.part_bytes = kMost + 16, .world = 2}),
            "mailboxes: a part is larger than the mailboxes; published; nccl; copies");
  EXPECT_EQ(gather({.part_bytes = 8, .world = 2}),
            "mailboxes; published: the shards are not whole 16 bytes; nccl; copies");
  EXPECT_EQ(gather({.part_bytes = 16, .has_equal_parts = false, .world = 2}),
            "mailboxes; published: the shards are not equal; nccl: the shards are not equal; copies");
  EXPECT_EQ(gather({.part_bytes = 16, .world = 17}),
            "mailboxes: more ranks than a kernel has addresses for; published: more ranks than a kernel has "
            "addresses for; nccl; copies");
  EXPECT_EQ(
      gather({.part_bytes = 16, .world = 1}),
      "mailboxes: one rank has no peers; published: one rank has no peers; nccl: one rank has no peers; "
      "copies");
  EXPECT_EQ(scatter({.part_bytes = kMost + 16, .world = 2}),
            "mailboxes: a part is larger than the mailboxes; in_place: kernels cannot read memory of peers; "
            "copies");
}

// One exchange of whole inputs, while that takes less than a scatter and a gather.
TEST_F(CollCudaAlgorithms, ReduceSmallInputsInOneExchange) {
  const auto all_reduce = [&](std::int64_t whole, int world) {
    return texts_of(algorithms().all_reduce,
                    {.whole_bytes = whole, .part_bytes = whole / world, .world = world});
  };
  EXPECT_EQ(all_reduce(16, 8), "mailboxes; parts");
  EXPECT_EQ(all_reduce(kMost, 2), "mailboxes; parts");
  EXPECT_EQ(all_reduce(kMost, 8), "mailboxes: a scatter and a gather take less; parts");
  EXPECT_EQ(all_reduce(kMost + 16, 2), "mailboxes: a part is larger than the mailboxes; parts");
  EXPECT_EQ(all_reduce(16, 1), "mailboxes: one rank has no peers; parts");
}

// Whichever runs: every problem has a prediction.
TEST_F(CollCudaAlgorithms, PredictByTheModelsOfKernels) {
  for (const int world : {1, 4, 17}) {
    for (const std::int64_t bytes : {std::int64_t{16}, kMost, kMost + 16, 64 * kMost}) {
      const Problem problem = {.whole_bytes = world * bytes, .part_bytes = bytes, .world = world};
      for (const GatherAlgorithm& algorithm : algorithms().gather) {
        if (algorithm.run == nullptr) continue;  // a build without NCCL
        EXPECT_EQ(algorithm.predicted_us(problem, cost::kH200),
                  cost::collective_us(cost::Collective::kAllGather, bytes, world, kMost));
      }
      for (const ScatterAlgorithm& algorithm : algorithms().scatter) {
        EXPECT_EQ(algorithm.predicted_us(problem, cost::kH200),
                  cost::collective_us(cost::Collective::kReduceScatter, bytes, world, kMost));
      }
      for (const AllReduceAlgorithm& algorithm : algorithms().all_reduce) {
        EXPECT_EQ(algorithm.predicted_us(problem, cost::kH200),
                  cost::collective_us(cost::Collective::kAllReduce, bytes, world, kMost));
      }
    }
  }
}

}  // namespace
}  // namespace tandem::coll::cuda
