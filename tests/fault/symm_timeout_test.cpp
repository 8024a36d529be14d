// Signals that do not come: the error, its text, and the group afterwards; on every backend.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "support/symm_kernels.hpp"
#include "support/symm_rank.hpp"

namespace tandem::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class SymmTimeout : public ::testing::TestWithParam<RankCase> {};
class SymmFault : public ::testing::TestWithParam<RankCase> {};
INSTANTIATE_TEST_SUITE_P(Two, SymmTimeout, ::testing::ValuesIn(rank_cases({2})), case_name);
INSTANTIATE_TEST_SUITE_P(Two, SymmFault, ::testing::ValuesIn(rank_cases({2})), case_name);

// Runs `call` on rank 0 of two; rank 1 does nothing until rank 0 is done. Both groups must be poisoned with
// kTimeout.
void expect_timeout(const RankCase& ranks, std::string_view piece,
                    const std::function<Result<void>(SymmRank&, symm::Handle&, milliseconds)>& call) {
  constexpr milliseconds kTimeout{300};
  std::atomic<bool> done{false};
  expect_ok(run_symm_ranks(ranks, {}, [&](SymmRank& rank) -> Result<void> {
    const Tensor tensor = rank.empty({4});
    const auto handle = rank.meet(tensor);
    if (rank.rank() == 0) {
      const auto start = steady_clock::now();
      expect_ok(call(rank, *handle, kTimeout));
      expect_error(rank.finish(), ErrorCode::kTimeout, piece);
      EXPECT_GE(steady_clock::now() - start, kTimeout);
      done = true;
    }
    while (!done) std::this_thread::sleep_for(milliseconds(5));
    expect_error(rank.group.status(), ErrorCode::kTimeout, piece);
    expect_error(handle->barrier(*rank.stream), ErrorCode::kTimeout, piece);
    expect_error(symm::rendezvous(rank.empty({4}), rank.group), ErrorCode::kTimeout, piece);
    return {};
  }));
}

TEST_P(SymmTimeout, BarrierThatOneRankDoesNotReach) {
  expect_timeout(GetParam(), "in barrier on channel 3",
                 [](SymmRank& rank, symm::Handle& handle, milliseconds timeout) {
                   return handle.barrier(*rank.stream, 3, timeout);
                 });
}

TEST_P(SymmTimeout, SecondPutWithoutAWait) {
  expect_timeout(GetParam(), "in put_signal on channel 1",
                 [](SymmRank& rank, symm::Handle& handle, milliseconds timeout) {
                   return handle.put_signal(*rank.stream, 1, 1, timeout).and_then([&] {
                     return handle.put_signal(*rank.stream, 1, 1, timeout);
                   });
                 });
}

TEST_P(SymmTimeout, WaitWithoutAPut) {
  expect_timeout(GetParam(), "in wait_signal on channel 0",
                 [](SymmRank& rank, symm::Handle& handle, milliseconds timeout) {
                   return handle.wait_signal(*rank.stream, 1, 0, timeout);
                 });
}

TEST_P(SymmTimeout, WaitInAKernelPoisonsTheGroup) {
  expect_timeout(GetParam(), "in wait_signal on channel 9",
                 [](SymmRank& rank, symm::Handle& handle, milliseconds timeout) {
                   expect_ok(handle.watch(*rank.stream));
                   return launch_wait(*rank.stream, rank.group, handle.kernel_handle(timeout), 1, 9);
                 });
}

TEST_P(SymmTimeout, KernelArgumentsOutOfRangePoisonTheGroup) {
  enum class Wrong { kBlock, kPeer };
  for (const Wrong wrong : {Wrong::kBlock, Wrong::kPeer}) {
    expect_ok(run_symm_ranks({GetParam().placement, 1}, {}, [&](SymmRank& rank) -> Result<void> {
      const Tensor tensor = rank.empty({4});
      const auto handle = rank.meet(tensor);
      const symm::KernelHandle kernel = handle->kernel_handle();
      expect_ok(handle->watch(*rank.stream));
      const std::string piece =
          wrong == Wrong::kBlock ? "channel " + std::to_string(kernel.num_channels) : "peer -1";
      expect_ok(wrong == Wrong::kBlock
                    ? launch_sync_blocks(*rank.stream, rank.group, kernel, kernel.num_channels)
                    : launch_wait(*rank.stream, rank.group, kernel, -1, 0));
      expect_error(rank.finish(), ErrorCode::kInvalidArgument, piece);
      expect_error(rank.group.status(), ErrorCode::kInvalidArgument, piece);
      return {};
    }));
  }
}

TEST_P(SymmFault, CorruptedSignalIsATimeoutNotAPass) {
  Config config;
  config.fault = "put:0:2:corrupt";
  config.op_timeout = milliseconds(1000);
  std::atomic<int> num_timeouts{0};
  std::atomic<bool> is_corrupted{false};
  (void)run_symm_ranks(GetParam(), config, [&](SymmRank& rank) -> Result<void> {
    const Tensor tensor = rank.empty({4});
    const auto handle = rank.meet(tensor);
    for (int i = 0; i < 2; ++i) {
      // The receiver looks only once the word is wrong: it could consume the signal before that.
      while (rank.rank() == 1 && i == 1 && !is_corrupted) std::this_thread::sleep_for(milliseconds(1));
      const auto enqueued = rank.rank() == 0 ? handle->put_signal(*rank.stream, 1, 0, milliseconds(5000))
                                             : handle->wait_signal(*rank.stream, 0, 0);
      if (!enqueued) return enqueued;
      const auto done = rank.finish();
      if (rank.rank() == 0 || i == 0) {
        expect_ok(done);
      } else {
        expect_error(done, ErrorCode::kTimeout, "expected 1, seen 4294967295");
        num_timeouts.fetch_add(1);
      }
      if (rank.rank() == 0 && i == 1) is_corrupted = true;
    }
    const Deadline deadline = Deadline::after(std::chrono::seconds(30));
    while (rank.group.status() && !deadline.expired()) std::this_thread::sleep_for(milliseconds(5));
    return {};
  });
  EXPECT_EQ(num_timeouts.load(), 1);
}

// A stray write may look like a signal, which no receiver can tell from a true one. Whatever it is, the ranks
// come back, and memory beside the pads stays.
TEST_P(SymmFault, AnyWordsInPadsEndInTime) {
  constexpr std::uint32_t kCanary = 0x5eed5eed;
  std::atomic<int> num_timeouts{0};
  for (unsigned seed = 0; seed < 10; ++seed) {
    Config config;
    config.op_timeout = milliseconds(100);
    config.log_level = LogLevel::kOff;
    (void)run_symm_ranks(GetParam(), config, [&](SymmRank& rank) -> Result<void> {
      std::mt19937 random(2 * seed + static_cast<unsigned>(rank.rank()));
      const Tensor tensor = rank.empty({64}, DType::kU32);
      rank.fill(tensor.view(), kCanary);
      const auto handle = rank.meet(tensor);
      const TensorView pad = handle->get_signal_pad(rank.rank()).value();
      Result<void> done;
      for (int i = 0; i < 20 && done; ++i) {
        const std::uint32_t words[] = {1, ~0U, static_cast<std::uint32_t>(random())};
        // Most of the pad is no channel of this test: those that are get more than their share.
        const auto place = static_cast<std::int64_t>(random() % (random() % 2 == 0 ? 4 : pad.numel()));
        rank.write(pad.narrow(0, place, 1), std::vector<std::uint32_t>{words[random() % 3]});
        done = handle->barrier(*rank.stream).and_then([&] { return rank.finish(); });
      }
      if (!done && done.error().code() == ErrorCode::kTimeout) num_timeouts.fetch_add(1);
      EXPECT_EQ(rank.read<std::uint32_t>(tensor.view()), std::vector<std::uint32_t>(64, kCanary));
      return {};
    });
  }
  EXPECT_GT(num_timeouts.load(), 0);
}

TEST_P(SymmFault, CorruptedGetIsVisible) {
  Config config;
  config.fault = "get:0:1:corrupt";
  expect_ok(run_symm_ranks({GetParam().placement, 1}, config, [](SymmRank& rank) -> Result<void> {
    const Tensor source = rank.empty({4}, DType::kU32);
    const auto handle = rank.meet(source);
    const auto target = rank.device->allocate_tensor({4}, DType::kU32).value();
    for (const std::uint32_t want : {0x40U, 0U}) {
      if (auto done = handle->get(*rank.stream, target.view(), 0); !done) return done;
      if (auto done = rank.finish(); !done) return done;
      EXPECT_EQ(rank.read<std::uint32_t>(target.view())[0], want);
    }
    return {};
  }));
}

TEST_P(SymmFault, CorruptedPutIsVisible) {
  Config config;
  config.fault = "put:0:1:corrupt";
  expect_ok(run_symm_ranks({GetParam().placement, 1}, config, [](SymmRank& rank) -> Result<void> {
    const Tensor target = rank.empty({4}, DType::kU32);
    const auto handle = rank.meet(target);
    const auto source = rank.device->allocate_tensor({4}, DType::kU32).value();
    rank.fill<std::uint32_t>(source.view(), 0);
    for (const std::uint32_t want : {0x40U, 0U}) {
      if (auto done = handle->put(*rank.stream, source.view(), 0); !done) return done;
      if (auto done = rank.finish(); !done) return done;
      EXPECT_EQ(rank.read<std::uint32_t>(target.view())[0], want);
    }
    return {};
  }));
}

TEST_P(SymmFault, GroupMayGoBeforeQueuedSignals) {
  Config config;
  config.op_timeout = milliseconds(200);
  const auto store = make_in_process_store();
  std::vector<std::thread> ranks;
  std::atomic<bool> done{false};
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      const auto device = open_device(GetParam().placement.device_of(r), config).value();
      const auto stream = device->create_stream().value();
      const Tensor tensor = symm::empty({2}, DType::kU32, *device).value();
      {
        const GroupOptions options{.rank = r, .size = 2, .name = "g", .store = store, .config = config};
        const auto group = Group::create(options).value();
        const auto handle = symm::rendezvous(tensor, *group).value();
        for (int i = 0; r == 0 && i < 3; ++i) (void)handle->barrier(*stream);  // nobody else comes
        while (r == 1 && !done) std::this_thread::sleep_for(milliseconds(5));
      }
      if (r == 1) return;
      EXPECT_FALSE(stream->synchronize());
      done = true;
    });
  }
  for (auto& rank : ranks) rank.join();
}

TEST_P(SymmFault, RanksThatFailHalfWayDoNotHurtANewGroup) {
  // The old group's pads are left in any state; the new group's signals must not notice.
  for (const char* fault : {"barrier:1:2:delay:400", "wait:0:1:delay:400", "put:1:1:delay:400"}) {
    Config config;
    config.fault = fault;
    config.op_timeout = milliseconds(150);
    const auto store = make_in_process_store();
    std::vector<std::thread> ranks;
    for (int r = 0; r < 2; ++r) {
      ranks.emplace_back([&, r] {
        GroupOptions options{.rank = r, .size = 2, .name = "g", .store = store, .config = config};
        const auto device = open_device(GetParam().placement.device_of(r), config).value();
        const auto stream = device->create_stream().value();
        const Tensor tensor = symm::empty({2}, DType::kU32, *device).value();
        {
          const auto group = Group::create(options).value();
          const auto handle = symm::rendezvous(tensor, *group).value();
          for (int i = 0; i < 3; ++i) {
            (void)handle->barrier(*stream);
            if (r == 1) (void)handle->put_signal(*stream, 0, 2);
            if (r == 0) (void)handle->wait_signal(*stream, 1, 2);
          }
          EXPECT_FALSE(stream->synchronize()) << fault;
          expect_error(group->status(), ErrorCode::kTimeout, "waited");
        }
        options.config = {};
        const auto group = Group::create(options).value();
        const auto handle = symm::rendezvous(tensor, *group).value();
        for (std::uint32_t round = 1; round <= 20; ++round) {
          expect_ok(stream->stream_write_value32(tensor.view(), r, round));
          expect_ok(handle->barrier(*stream));
          expect_ok(stream->synchronize());
          const auto theirs = handle->get_buffer(1 - r, {2}, DType::kU32).value();
          std::uint32_t words[2] = {};
          expect_ok(device->copy_to_host(theirs, words));
          EXPECT_EQ(words[1 - r], round) << fault;
          expect_ok(handle->barrier(*stream));
          expect_ok(stream->synchronize());
        }
      });
    }
    for (auto& rank : ranks) rank.join();
  }
}

}  // namespace
}  // namespace tandem::testing
