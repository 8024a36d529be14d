// What `auto` takes where a table of measured times exists: the same on ranks whose devices differ.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tandem/cost/folder.hpp>
#include <tandem/tandem.hpp>
#include <thread>
#include <vector>

#include "support/io_folder.hpp"

namespace tandem {
namespace {

constexpr int kWorld = 2;
// Those of a square b, as which b counts where nobody tells.
constexpr std::int64_t kPlanN = 4;
constexpr std::int64_t kPlanK = 6;

/// One rank with all it needs, on a CPU device with an instruction set of its own.
struct Rank {
  std::unique_ptr<Device> device;
  std::unique_ptr<Group> group;
  std::unique_ptr<Stream> stream;
};

/// Rank 1 has another instruction set than rank 0, which may have this one at the least.
Config config_of(int rank, const tests::Folder& folder) {
  Config config;
  config.tune_folder = folder.path().native();
  if (rank == 1) config.isa = "scalar";
  return config;
}

void on_two_ranks(const tests::Folder& folder, const std::function<void(Rank&)>& body) {
  const auto store = make_in_process_store();
  std::vector<std::thread> threads;
  for (int r = 0; r < kWorld; ++r) {
    threads.emplace_back([&, r] {
      const Config config = config_of(r, folder);
      Rank rank;
      rank.device = open_device({DeviceKind::kCpu, 0}, config).value();
      rank.group = Group::create({.rank = r,
                                  .size = kWorld,
                                  .name = "g",
                                  .store = store,
                                  .config = config,
                                  .device = rank.device->description()})
                       .value();
      rank.stream = rank.device->create_stream().value();
      body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// The tensors of both ops: a [8, 4] a rank; b [4, 6].
struct Tensors {
  explicit Tensors(Device& device)
      : a(device.allocate_tensor({8, 4}, DType::kF32).value()),
        b(device.allocate_tensor({4, 6}, DType::kF32).value()),
        gathered_out(device.allocate_tensor({8 * kWorld, 6}, DType::kF32).value()),
        scattered_out(device.allocate_tensor({8 / kWorld, 6}, DType::kF32).value()),
        as{a.view()},
        bs{b.view()},
        outs{gathered_out.view()} {}

  [[nodiscard]] AllGatherMatmulArgs gather(std::int64_t plan_n) const {
    AllGatherMatmulArgs args{
        .a = as[0], .b = bs, .gather_dim = 0, .gather_size = 8 * kWorld, .out = outs, .gathered = {}};
    args.plan_n = plan_n;
    return args;
  }
  [[nodiscard]] MatmulReduceScatterArgs scatter(std::int64_t plan_k) const {
    MatmulReduceScatterArgs args{.a = as, .b = bs, .scatter_dim = 0, .out = scattered_out.view()};
    args.plan_k = plan_k;
    return args;
  }

  Tensor a, b, gathered_out, scattered_out;
  std::array<TensorView, 1> as, bs, outs;
};

/// A row for each op in the table of rank 0's device, by which `pipelined` is the one to take.
void measure(const tests::Folder& folder) {
  on_two_ranks(folder, [&](Rank& rank) {
    const Tensors tensors(*rank.device);
    for (const auto& report : {plan(tensors.gather(kPlanN), *rank.group, *rank.stream),
                               plan(tensors.scatter(kPlanK), *rank.group, *rank.stream)}) {
      ASSERT_TRUE(report) << report.error().to_string();
      ASSERT_NE(report->tune_key, nullptr);
      EXPECT_EQ(report->reason.substr(0, 9), "predicted");
      if (rank.group->rank() != 0) continue;
      const cost::Row row{.key = *report->tune_key, .us = {{"serial", 100}, {"pipelined", 50}}};
      ASSERT_TRUE(cost::add_rows(folder.path(), rank.device->description(), {row}));
    }
  });
}

TEST(FusedMeasuredChoice, IsTheSameOnRanksWithOtherInstructionSets) {
  const tests::Folder folder;
  measure(folder);
  on_two_ranks(folder, [](Rank& rank) {
    Tensors tensors(*rank.device);
    for (Tensor* tensor : {&tensors.a, &tensors.b})
      std::fill_n(tensor->view().data_as<float>(), tensor->view().numel(), 1.0F);
    const auto gathered = fused_all_gather_matmul(tensors.gather(kPlanN), *rank.group, *rank.stream);
    const auto scattered = fused_matmul_reduce_scatter(tensors.scatter(kPlanK), *rank.group, *rank.stream);
    for (const auto& report : {gathered, scattered}) {
      ASSERT_TRUE(report) << report.error().to_string();
      EXPECT_EQ(report->algorithm, Algorithm::kPipelined);
      EXPECT_TRUE(report->reason.starts_with("measured 50.0 us; serial 100 us")) << report->reason;
    }
    const auto done = rank.stream->synchronize();
    ASSERT_TRUE(done) << done.error().to_string();
    EXPECT_EQ(tensors.gathered_out.view().data_as<float>()[8 * kWorld * 6 - 1], 4.0F);
    EXPECT_EQ(tensors.scattered_out.view().data_as<float>()[0], 4.0F * kWorld);
  });
}

TEST(FusedMeasuredChoice, IsNotMadeForASizeThatNobodyTold) {
  const tests::Folder folder;
  measure(folder);
  on_two_ranks(folder, [](Rank& rank) {
    const Tensors tensors(*rank.device);
    for (const auto& report : {plan(tensors.gather(0), *rank.group, *rank.stream),
                               plan(tensors.scatter(0), *rank.group, *rank.stream)}) {
      ASSERT_TRUE(report) << report.error().to_string();
      EXPECT_EQ(report->tune_key, nullptr);
      EXPECT_EQ(report->reason.substr(0, 9), "predicted");
      EXPECT_FALSE(report->candidates[0].measured_us);
    }
  });
}

}  // namespace
}  // namespace tandem
