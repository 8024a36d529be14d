// Data moved between threads by signals alone: the thread sanitizer must have nothing to say.
#include <gtest/gtest.h>

#include <numeric>
#include <tandem/cpu/launch.hpp>

#include "support/symm_rank.hpp"

namespace tandem::testing {
namespace {

constexpr std::int64_t kCount = 256;

// Writes own data on the stream, then sums everybody's after the barrier.
Result<void> exchange_rounds(SymmRank& rank, symm::Handle& handle, Stream& stream, int channel,
                             int num_rounds) {
  for (int round = 0; round < num_rounds; ++round) {
    auto* const mine =
        static_cast<std::int64_t*>(handle.buffer_ptrs()[static_cast<std::size_t>(rank.rank())]) +
        channel * kCount;
    auto fill = [mine, round]() -> Result<void> {
      std::iota(mine, mine + kCount, round);
      return {};
    };
    if (auto done = cpu::launch(stream, cpu::Task(fill)); !done) return done;
    if (auto done = handle.barrier(stream, channel); !done) return done;
    auto check = [&handle, channel, round]() -> Result<void> {
      for (void* const buffer : handle.buffer_ptrs()) {
        const auto* theirs = static_cast<const std::int64_t*>(buffer) + channel * kCount;
        const std::int64_t sum = std::accumulate(theirs, theirs + kCount, std::int64_t{0});
        const std::int64_t want = kCount * (kCount - 1) / 2 + kCount * round;
        if (sum != want)
          return fail(ErrorCode::kInternal, std::to_string(sum) + " is not " + std::to_string(want));
      }
      return {};
    };
    if (auto done = cpu::launch(stream, cpu::Task(check)); !done) return done;
    if (auto done = handle.barrier(stream, channel); !done) return done;
  }
  return {};
}

TEST(SymmSignalsRace, BarriersOrderPlainData) {
  for (const int size : {2, 3, 4}) {
    expect_ok(run_symm_ranks(size, {}, [](SymmRank& rank) -> Result<void> {
      const Tensor tensor = rank.empty({2 * kCount}, DType::kI64);
      const auto handle = rank.meet(tensor);
      auto other = rank.device->create_stream().value();
      if (auto done = exchange_rounds(rank, *handle, *rank.stream, 0, 20); !done) return done;
      if (auto done = exchange_rounds(rank, *handle, *other, 1, 20); !done) return done;
      if (auto done = other->synchronize(); !done) return done;
      return rank.finish();
    }));
  }
}

TEST(SymmSignalsRace, PutAndWaitOrderPlainData) {
  expect_ok(run_symm_ranks(2, {}, [](SymmRank& rank) -> Result<void> {
    const Tensor tensor = rank.empty({kCount}, DType::kI64);
    const auto handle = rank.meet(tensor);
    auto* const data = static_cast<std::int64_t*>(handle->buffer_ptrs()[0]);
    for (int round = 0; round < 50; ++round) {
      // The buffer goes to and fro: rank 0 writes, rank 1 adds, rank 0 checks.
      if (rank.rank() == 0) {
        auto write = [data, round]() -> Result<void> {
          std::iota(data, data + kCount, round);
          return {};
        };
        if (auto done = cpu::launch(*rank.stream, cpu::Task(write)); !done) return done;
        if (auto done = handle->put_signal(*rank.stream, 1, 8); !done) return done;
        if (auto done = handle->wait_signal(*rank.stream, 1, 8); !done) return done;
      } else {
        if (auto done = handle->wait_signal(*rank.stream, 0, 8); !done) return done;
        auto add = [data]() -> Result<void> {
          for (std::int64_t i = 0; i < kCount; ++i) data[i] += 1;
          return {};
        };
        if (auto done = cpu::launch(*rank.stream, cpu::Task(add)); !done) return done;
        if (auto done = handle->put_signal(*rank.stream, 0, 8); !done) return done;
      }
    }
    if (auto done = rank.finish(); !done) return done;
    if (rank.rank() == 0) {
      EXPECT_EQ(data[kCount - 1], 49 + kCount - 1 + 1);
    }
    return {};
  }));
}

TEST(SymmSignalsRace, GetReadsWhatTheBarrierPublished) {
  expect_ok(run_symm_ranks(3, {}, [](SymmRank& rank) -> Result<void> {
    const Tensor source = rank.empty({kCount}, DType::kI64);
    const auto handle = rank.meet(source);
    const auto target = rank.device->allocate_tensor({kCount}, DType::kI64).value();
    auto* const mine = source.view().data_as<std::int64_t>();
    for (int round = 0; round < 20; ++round) {
      auto fill = [mine, round]() -> Result<void> {
        std::iota(mine, mine + kCount, round);
        return {};
      };
      if (auto done = cpu::launch(*rank.stream, cpu::Task(fill)); !done) return done;
      if (auto done = handle->barrier(*rank.stream); !done) return done;
      if (auto done = handle->get(*rank.stream, target.view(), (rank.rank() + 1) % rank.size()); !done)
        return done;
      if (auto done = handle->barrier(*rank.stream); !done) return done;
    }
    if (auto done = rank.finish(); !done) return done;
    EXPECT_EQ(target.view().data_as<std::int64_t>()[kCount - 1], 19 + kCount - 1);
    return {};
  }));
}

}  // namespace
}  // namespace tandem::testing
