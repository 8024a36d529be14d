#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <span>
#include <stdexcept>
#include <string>
#include <tandem/bootstrap/thread_ranks.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "bootstrap/control.hpp"
#include "support/no_threads.hpp"

namespace tandem {
namespace {

Config short_timeouts() {
  Config config;
  config.op_timeout = std::chrono::milliseconds(3'000);
  config.rendezvous_timeout = std::chrono::milliseconds(3'000);
  return config;
}

Store::Bytes bytes_of(const std::string& text) {
  const auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

TEST(ThreadRanks, EveryRankGetsEveryRanksBytesInRankOrder) {
  for (const int size : {1, 2, 3, 4, 8}) {
    const auto result = run_thread_ranks(size, short_timeouts(), [](Group& group) -> Result<void> {
      // Lengths that differ by rank, over several pieces, and empty ones.
      for (const std::size_t unit : {0, 1, 1000, 5000}) {
        const auto text_of = [&](int r) {
          return std::string(unit * static_cast<std::size_t>(r), static_cast<char>('a' + r));
        };
        TANDEM_ASSIGN(const auto all, group.all_gather(bytes_of(text_of(group.rank())), "texts"));
        for (int r = 0; r < group.size(); ++r) {
          if (all[static_cast<std::size_t>(r)] != bytes_of(text_of(r))) {
            return failf(ErrorCode::kInternal, "unit {}: rank {} got {} wrong bytes of rank {}", unit,
                         group.rank(), all[static_cast<std::size_t>(r)].size(), r);
          }
        }
      }
      return {};
    });
    EXPECT_TRUE(result) << result.error().to_string();
  }
}

TEST(ThreadRanks, WithoutAThreadNoRankRuns) {
  const testing::NoThreads none;
  std::atomic<int> num_run{0};
  const auto result = run_thread_ranks(4, short_timeouts(), [&](Group&) -> Result<void> {
    ++num_run;
    return {};
  });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().native_code(), EAGAIN);
  EXPECT_EQ(result.error().text().find("thread ranks: rank 0 of 4: no thread: "), 0U)
      << result.error().text();
  EXPECT_EQ(num_run, 0);
}

TEST(ThreadRanks, AnErrorOfOneRankReachesAll) {
  std::atomic<int> num_told{0};
  const auto result = run_thread_ranks(4, short_timeouts(), [&](Group& group) -> Result<void> {
    if (group.rank() == 2) return fail(ErrorCode::kNumeric, "seven is not even");
    const auto gathered = group.all_gather({}, "never complete");
    if (!gathered && gathered.error().code() == ErrorCode::kPeerLost &&
        gathered.error().text().find("seven is not even") != std::string::npos) {
      ++num_told;
    }
    TANDEM_TRY(gathered);
    return {};
  });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().text(), "seven is not even");
  EXPECT_EQ(num_told, 3);
}

TEST(ThreadRanks, AnExceptionIsAnErrorOfItsRank) {
  const auto result = run_thread_ranks(2, short_timeouts(), [](Group& group) -> Result<void> {
    if (group.rank() == 1) throw std::runtime_error("thrown on purpose");
    TANDEM_TRY(group.all_gather({}, "never complete"));
    return {};
  });
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().text().find("rank 1 threw: thrown on purpose"), std::string::npos)
      << result.error().text();
}

TEST(ThreadRanks, ARankThatReturnsEarlyIsNamed) {
  const auto result = run_thread_ranks(3, short_timeouts(), [](Group& group) -> Result<void> {
    if (group.rank() == 1) return {};
    TANDEM_TRY(group.all_gather({}, "never complete"));
    return {};
  });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::kPeerLost);
  EXPECT_NE(result.error().text().find("rank 1 "), std::string::npos) << result.error().text();
  EXPECT_NE(result.error().text().find("has left the group"), std::string::npos) << result.error().text();
}

TEST(ThreadRanks, SizeZeroIsRefused) {
  const auto result = run_thread_ranks(0, {}, [](Group&) -> Result<void> { return {}; });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem
