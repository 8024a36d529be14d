// What devices of one process that share a GPU keep to when they enqueue. That ranks get through with it is
// for the tests of several ranks on one GPU.
#include "device/cuda/shared_gpu.hpp"

#include <gtest/gtest.h>

#include <future>
#include <thread>

namespace tandem::cuda {
namespace {

Result<void> enqueue_nothing() {
  return {};
}

// A second thread tries while the first is in its turn.
bool may_two_be_in_turn(SharedGpu& gpu) {
  std::promise<void> has_entered;
  std::thread second;
  bool met = false;
  const auto first_turn = gpu.in_turn(Waits::kForNobody, nullptr, [&]() -> Result<void> {
    second = std::thread([&] {
      static_cast<void>(gpu.in_turn(Waits::kForNobody, nullptr, [&]() -> Result<void> {
        has_entered.set_value();
        return {};
      }));
    });
    met = has_entered.get_future().wait_for(std::chrono::milliseconds(50)) == std::future_status::ready;
    return {};
  });
  second.join();
  return first_turn.has_value() && met;
}

TEST(DeviceSharedGpu, DevicesTakeTurnsWhereThereAreSeveral) {
  SharedGpu gpu;
  EXPECT_TRUE(may_two_be_in_turn(gpu));
  gpu.count_device();
  EXPECT_TRUE(may_two_be_in_turn(gpu));
  gpu.count_device();
  EXPECT_FALSE(may_two_be_in_turn(gpu));
  gpu.forget_device();
  EXPECT_TRUE(may_two_be_in_turn(gpu));
}

TEST(DeviceSharedGpu, OpsOfOpsAreInOneTurn) {
  SharedGpu gpu;
  gpu.count_device();
  gpu.count_device();
  const auto nested = [&] { return gpu.in_turn(Waits::kForNobody, nullptr, enqueue_nothing); };
  EXPECT_TRUE(gpu.in_turn(Waits::kForNobody, nullptr, nested));
}

// The empty kernel is seen by the refusal of one: no kernel goes to a stream of a GPU that is not the current
// one.
TEST(DeviceSharedGpu, WhatWaitsForPeersGetsAnEmptyKernelBehindIt) {
  int num_gpus = 0;
  if (cudaGetDeviceCount(&num_gpus) != cudaSuccess || num_gpus < 2) GTEST_SKIP() << "needs two GPUs";
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  cudaStream_t elsewhere = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&elsewhere, cudaStreamNonBlocking, 0), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);

  SharedGpu gpu;
  gpu.count_device();
  EXPECT_TRUE(gpu.in_turn(Waits::kForPeers, elsewhere, enqueue_nothing)) << "one device";
  gpu.count_device();
  EXPECT_TRUE(gpu.in_turn(Waits::kForNobody, elsewhere, enqueue_nothing));
  const auto kept = gpu.in_turn(Waits::kForPeers, elsewhere, enqueue_nothing);
  ASSERT_FALSE(kept);
  EXPECT_TRUE(kept.error().text().starts_with("keep_queue: ")) << kept.error().text();
  const auto refused = gpu.in_turn(Waits::kForPeers, elsewhere,
                                   []() -> Result<void> { return fail(ErrorCode::kDriver, "the first"); });
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().text(), "the first");
  EXPECT_EQ(cudaStreamDestroy(elsewhere), cudaSuccess);
}

TEST(DeviceSharedGpu, CopiesAndQueuesAreOthersWhereThereAreSeveralDevices) {
  SharedGpu gpu;
  gpu.count_device();
  EXPECT_EQ(gpu.copy_by(), CopyBy::kEngine);
  const int alone = gpu.max_queued_ops();
  gpu.count_device();
  EXPECT_EQ(gpu.copy_by(), CopyBy::kKernel);
  EXPECT_LT(gpu.max_queued_ops(), alone);
}

}  // namespace
}  // namespace tandem::cuda
