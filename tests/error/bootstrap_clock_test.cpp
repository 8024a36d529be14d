// The wall clock jumps by a year at each look, back and forth: ranks meet, exchange and wait as if it did
// not.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <ctime>
#include <tandem/bootstrap/thread_ranks.hpp>
#include <thread>

namespace {

std::atomic<bool> jumps{false};
std::atomic<unsigned> num_looks{0};

}  // namespace

// Stands before the C library's in this program.
extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  constexpr time_t kYearSeconds = 365 * 24 * 3600;
  const auto result = static_cast<int>(::syscall(SYS_clock_gettime, clock, now));
  if (jumps && clock == CLOCK_REALTIME) now->tv_sec += num_looks++ % 2 == 0 ? kYearSeconds : -kYearSeconds;
  return result;
}

namespace tandem {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class ClockThatJumps : public ::testing::Test {
 protected:
  void SetUp() override {
    jumps = true;
    const std::chrono::duration<double> apart =
        std::chrono::system_clock::now() - std::chrono::system_clock::now();
    ASSERT_GT(std::abs(apart.count()), 3600.0) << "the clock of this test does not jump";
  }
  void TearDown() override { jumps = false; }
};

TEST_F(ClockThatJumps, LetsRanksMeetAndExchange) {
  const auto result = run_thread_ranks(3, {}, [](Group& group) -> Result<void> {
    for (int round = 0; round < 100; ++round) {
      const auto gathered = group.all_gather({}, "round");
      if (!gathered) return tl::unexpected(gathered.error());
      EXPECT_EQ(gathered->size(), 3U);
    }
    return {};
  });
  EXPECT_TRUE(result) << result.error().to_string();
}

TEST_F(ClockThatJumps, LeavesDeadlinesAlone) {
  Config config;
  config.rendezvous_timeout = milliseconds(400);
  std::atomic<bool> is_over{false};
  const auto result = run_thread_ranks(2, config, [&](Group& group) -> Result<void> {
    if (group.rank() == 0) {
      const auto begin = steady_clock::now();
      const auto gathered = group.all_gather({}, "alone");
      EXPECT_GE(steady_clock::now() - begin, config.rendezvous_timeout);
      is_over = true;
      EXPECT_EQ(gathered ? "ok" : to_string(gathered.error().code()), "Timeout");
    }
    while (!is_over) std::this_thread::sleep_for(milliseconds(5));
    return {};
  });
  EXPECT_TRUE(result) << result.error().to_string();
}

}  // namespace
}  // namespace tandem
