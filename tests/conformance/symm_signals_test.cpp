// Signals and barriers on ranks that are threads, for every backend and size.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "support/symm_kernels.hpp"
#include "support/symm_rank.hpp"

namespace tandem::testing {
namespace {

class SymmSignals : public ::testing::TestWithParam<RankCase> {
 protected:
  void run(const SymmProgram& program, const Config& config = {}) {
    expect_ok(run_symm_ranks(GetParam(), config, program));
  }
};
INSTANTIATE_TEST_SUITE_P(World, SymmSignals, ::testing::ValuesIn(rank_cases({1, 2, 3, 4, 8})), case_name);

// A rendezvous of another tensor: all have come here, and nobody signals on `handle` any more.
void pause(const SymmRank& rank) {
  const Tensor tensor = rank.empty({1});
  (void)rank.meet(tensor);
}

TEST_P(SymmSignals, EveryPairOnItsOwnChannel) {
  run([](SymmRank& rank) -> Result<void> {
    const Tensor tensor = rank.empty({rank.size()}, DType::kI32);
    const auto handle = rank.meet(tensor);
    for (int step = 1; step < rank.size(); ++step) {
      const int next = (rank.rank() + step) % rank.size();
      const int previous = (rank.rank() - step + rank.size()) % rank.size();
      const auto theirs = handle->get_buffer(next, {1}, DType::kU32, rank.rank()).value();
      if (auto done = rank.stream->stream_write_value32(theirs, 0, 100 * step + rank.rank()); !done)
        return done;
      if (auto done = handle->put_signal(*rank.stream, next, step); !done) return done;
      if (auto done = handle->wait_signal(*rank.stream, previous, step); !done) return done;
      if (auto done = rank.finish(); !done) return done;
      EXPECT_EQ(rank.read<std::int32_t>(tensor.view())[static_cast<std::size_t>(previous)],
                100 * step + previous)
          << "rank " << rank.rank() << ", step " << step;
    }
    pause(rank);
    expect_pad_zero(*handle);
    return {};
  });
}

/// The driver's queues are finite, and a host that fills one waits in the driver. Where ranks share a GPU it
/// then keeps the others from enqueueing what its kernels wait for.
Result<void> catch_up(SymmRank& rank, int step) {
  constexpr int kSteps = 16;
  if (rank.device->id().kind == DeviceKind::kCpu || step % kSteps != kSteps - 1) return {};
  return rank.finish();
}

TEST_P(SymmSignals, NoSignalIsLostOrMerged) {
  run([](SymmRank& rank) -> Result<void> {
    constexpr int kSignals = 200;
    const Tensor tensor = rank.empty({4}, DType::kU32);
    const auto handle = rank.meet(tensor);
    const int next = (rank.rank() + 1) % rank.size();
    const int previous = (rank.rank() + rank.size() - 1) % rank.size();
    auto sender = rank.device->create_stream().value();
    for (int i = 0; i < kSignals && rank.size() > 1; ++i) {
      if (auto done = handle->put_signal(*sender, next, 5); !done) return done;
      if (auto done = handle->wait_signal(*rank.stream, previous, 5); !done) return done;
      if (auto done = catch_up(rank, i); !done) return done;
    }
    if (auto done = sender->synchronize(); !done) return done;
    if (auto done = rank.finish(); !done) return done;
    pause(rank);
    expect_pad_zero(*handle);
    return {};
  });
}

TEST_P(SymmSignals, TwoStreamsOnTwoChannels) {
  run([](SymmRank& rank) -> Result<void> {
    constexpr std::uint32_t kRounds = 40;
    const Tensor tensor = rank.empty({2}, DType::kU32);
    const auto handle = rank.meet(tensor);
    const std::int64_t size = rank.size();
    // What each stream read from each rank between its two barriers: [channel, round, rank].
    const auto seen = rank.device->allocate_tensor({2, kRounds, size}, DType::kU32).value();
    auto other = rank.device->create_stream().value();
    Stream* const streams[] = {rank.stream.get(), other.get()};
    std::mt19937 random(static_cast<unsigned>(rank.rank()));
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      if (auto done = catch_up(rank, static_cast<int>(round) * 8 - 1); !done) return done;
      for (int channel = 0; channel < 2; ++channel) {
        Stream& stream = *streams[channel];
        if (auto done = stream.stream_write_value32(tensor.view(), channel, round); !done) return done;
        if (random() % 4 == 0) {
          if (auto done = stream.sleep(std::chrono::microseconds(random() % 300)); !done) return done;
        }
        if (auto done = handle->barrier(stream, channel); !done) return done;
        const TensorView row = seen.view().select(0, channel).select(0, round - 1);
        for (int q = 0; q < size; ++q) {
          if (auto done = handle->get(stream, row.narrow(0, q, 1), q, channel); !done) return done;
        }
        if (auto done = handle->barrier(stream, channel); !done) return done;
      }
    }
    if (auto done = other->synchronize(); !done) return done;
    if (auto done = rank.finish(); !done) return done;
    const auto words = rank.read<std::uint32_t>(seen.view());
    for (std::size_t i = 0; i < words.size(); ++i) {
      EXPECT_EQ(words[i], i / static_cast<std::size_t>(size) % kRounds + 1)
          << "a barrier let it pass, word " << i;
    }
    return {};
  });
}

TEST_P(SymmSignals, PadsAreZeroAfterRandomPrograms) {
  // All ranks make the same random program, so that every put has its wait.
  run([](SymmRank& rank) -> Result<void> {
    constexpr int kSteps = 10'000;
    const Tensor tensor = rank.empty({4});
    const auto handle = rank.meet(tensor);
    std::mt19937 random(7);
    const auto draw = [&](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
    for (int i = 0; i < kSteps / (rank.size() * rank.size()); ++i) {
      if (auto done = catch_up(rank, i); !done) return done;
      const int channel = draw(handle->num_channels());
      const int src = draw(rank.size());
      const int dst = draw(rank.size());
      if (draw(8) == 0) {
        if (auto done = handle->barrier(*rank.stream, channel); !done) return done;
        continue;
      }
      if (rank.rank() == src) {
        if (auto done = handle->put_signal(*rank.stream, dst, channel); !done) return done;
      }
      if (rank.rank() == dst) {
        if (auto done = handle->wait_signal(*rank.stream, src, channel); !done) return done;
      }
    }
    if (auto done = rank.finish(); !done) return done;
    pause(rank);
    expect_pad_zero(*handle);
    return {};
  });
}

TEST_P(SymmSignals, KernelsMeetBlockByBlock) {
  run([](SymmRank& rank) -> Result<void> {
    const Tensor tensor = rank.empty({1}, DType::kU32);
    const auto handle = rank.meet(tensor);
    const symm::KernelHandle kernel = handle->kernel_handle();
    EXPECT_EQ(kernel.rank, rank.rank());
    EXPECT_EQ(kernel.num_channels, handle->num_channels());
    const auto num_wrong = rank.device->allocate_tensor({1}, DType::kU32).value();
    if (auto done = handle->watch(*rank.stream); !done) return done;
    if (auto done = launch_meeting_rounds(*rank.stream, rank.group, kernel,
                                          num_wrong.view().data_as<std::uint32_t>());
        !done) {
      return done;
    }
    if (auto done = rank.finish(); !done) return done;
    EXPECT_EQ(rank.read<std::uint32_t>(num_wrong.view())[0], 0U);
    pause(rank);
    expect_pad_zero(*handle);
    return {};
  });
}

TEST_P(SymmSignals, QueuedSignalsOutliveTheirHandle) {
  run([](SymmRank& rank) -> Result<void> {
    for (int i = 0; i < 20; ++i) {
      if (auto done = rank.stream->sleep(std::chrono::microseconds(200)); !done) return done;
      {
        const Tensor tensor = rank.empty({4});
        const auto handle = rank.meet(tensor);
        if (auto done = handle->barrier(*rank.stream); !done) return done;
      }
    }
    return rank.finish();
  });
}

TEST_P(SymmSignals, LinkDelayIsPaidForPeersOnly) {
  Config config;
  config.link_delay = std::chrono::milliseconds(30);
  run(
      [&](SymmRank& rank) -> Result<void> {
        const Tensor source = rank.empty({16});
        const auto handle = rank.meet(source);
        const auto target = rank.device->allocate_tensor({16}, DType::kF32).value();
        if (auto done = handle->barrier(*rank.stream).and_then([&] { return rank.finish(); }); !done)
          return done;
        if (rank.size() > 1) {
          const auto start = std::chrono::steady_clock::now();
          if (auto done = handle->get(*rank.stream, target.view(), (rank.rank() + 1) % rank.size()); !done)
            return done;
          if (auto done = rank.finish(); !done) return done;
          EXPECT_GE(std::chrono::steady_clock::now() - start, config.link_delay);
        }
        return handle->barrier(*rank.stream).and_then([&] { return rank.finish(); });
      },
      config);
}

}  // namespace
}  // namespace tandem::testing
