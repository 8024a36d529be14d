// A stream that failed, or that was given up: how far the damage goes.
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <tandem/cpu/launch.hpp>
#include <tandem/tandem.hpp>
#include <thread>
#include <vector>

#include "conformance/fused_harness.hpp"

namespace tandem {
namespace {

using std::chrono::milliseconds;

/// One rank's tensors of a gather.
struct Gather {
  Gather(Device& device, int world)
      : a(device, Dims{4, 16}, DType::kF32),
        b(device, Dims{16, 8}, DType::kF32),
        out(device, Dims{4 * world, 8}, DType::kF32) {}
  Result<void> enqueue(Group& group, Stream& stream) const {
    return test::gather_and_multiply(a, b, out, Algorithm::kPipelined, group, stream);
  }
  test::Guarded a, b, out;
};

// On a GPU no work is skipped: only a CPU's stream can leave out a call.
TEST(FusedBrokenStream, TellsTheOtherRanksAtOnce) {
  constexpr int kWorld = 3;
  Config config;
  config.op_timeout = milliseconds(60'000);
  test::Complaints complaints;
  // A stream that breaks ends whatever another rank still waits for: all ranks are through with the first op
  // before.
  std::barrier first_is_done(kWorld);
  test::on_ranks({{{}, kWorld}}, config, complaints, [&](test::RankContextOfTest& rank) -> Result<void> {
    Gather gather(rank.device, kWorld);
    // Once known, a problem is agreed on by a task of the stream.
    const auto first = gather.enqueue(rank.group, rank.stream);
    const auto first_result = rank.stream.synchronize();
    first_is_done.arrive_and_wait();
    if (!first) return first;
    if (!first_result) return first_result;
    if (rank.group.rank() == 1) {
      const auto broken = [] { return Result<void>(tl::unexpected(Error(ErrorCode::kInternal, "mine"))); };
      if (auto done = cpu::launch(rank.stream, cpu::Task(broken)); !done) return done;
    }
    const auto enqueued = gather.enqueue(rank.group, rank.stream);
    const auto result = rank.stream.synchronize();
    if (enqueued && result) complaints.add("no error on rank " + std::to_string(rank.group.rank()));
    const auto status = rank.group.status();
    if (status || status.error().text().find("rank 1 skipped call #") == std::string::npos) {
      complaints.add(status ? "the group is well" : status.error().to_string());
    }
    return {};
  });
  EXPECT_EQ(complaints.text(), "");
}

class FusedGivenUp : public ::testing::TestWithParam<test::JobCase> {};
INSTANTIATE_TEST_SUITE_P(Ranks, FusedGivenUp, ::testing::ValuesIn(test::exact_cases({2})), test::job_name);

TEST_P(FusedGivenUp, DoesNotHurtANewGroupOnTheSameDevice) {
  const testing::RankCase& where = GetParam().ranks;
  const Config config = test::with_own_products({});
  const auto store = make_in_process_store();
  // Poison ends whatever another rank still waits for: both ranks are through with the first op before.
  std::barrier first_is_done(where.size);
  std::vector<std::thread> ranks;
  for (int r = 0; r < where.size; ++r) {
    ranks.emplace_back([&, r] {
      const auto device = open_device(where.placement.device_of(r), config).value();
      Gather gather(*device, where.size);
      const GroupOptions options{
          .rank = r, .size = where.size, .name = "g", .store = store, .config = config};
      {
        const auto group = Group::create(options).value();
        const auto stream = device->create_stream().value();
        const auto first = gather.enqueue(*group, *stream);
        const auto first_result = stream->synchronize();
        first_is_done.arrive_and_wait();
        ASSERT_TRUE(first) << first.error().to_string();
        ASSERT_TRUE(first_result) << first_result.error().to_string();
        if (r == 0) (void)gather.enqueue(*group, *stream);
        while (group->status()) {
          std::this_thread::sleep_for(milliseconds(5));
          if (r == 1) group->poison(Error(ErrorCode::kInternal, "enough"), 1);
        }
        // The stream ends without having told anybody.
      }
      const auto group = Group::create(options).value();
      const auto stream = device->create_stream().value();
      for (int i = 0; i < 3; ++i) {
        const auto enqueued = gather.enqueue(*group, *stream);
        ASSERT_TRUE(enqueued) << enqueued.error().to_string();
        const auto result = stream->synchronize();
        ASSERT_TRUE(result) << "op " << i << ": " << result.error().to_string();
      }
    });
  }
  for (auto& rank : ranks) rank.join();
}

}  // namespace
}  // namespace tandem
