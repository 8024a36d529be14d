// What a group's ranks predict with: the same on all, whoever finds it out, and no rank waits for another to
// come.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <tandem/bootstrap/group.hpp>
#include <thread>
#include <vector>

#include "base/usable_cores.hpp"
#include "bootstrap/group_rates.hpp"

namespace tandem::bootstrap {
namespace {

constexpr CoreRate kNeeded[] = {CoreRate::kMmF32, CoreRate::kCopy};

CoreRates rates_of(const std::string& text) {
  return parse_core_rates(text).value();
}

/// `rates`: of each rank's configuration, as TANDEM_RATES has them; "": none.
void on_ranks(
    const std::vector<std::string>& rates, const std::function<void(Group&)>& body,
    const std::function<void(int)>& before = [](int) {}) {
  const auto store = make_in_process_store();
  std::vector<std::thread> ranks;
  for (int r = 0; r < static_cast<int>(rates.size()); ++r) {
    ranks.emplace_back([&, r] {
      before(r);
      Config config;
      const std::string& text = rates[static_cast<std::size_t>(r)];
      if (!text.empty()) config.core_rates = rates_of(text);
      const auto group = Group::create(
          {.rank = r, .size = static_cast<int>(rates.size()), .name = "g", .store = store, .config = config});
      ASSERT_TRUE(group) << group.error().to_string();
      body(**group);
    });
  }
  for (auto& rank : ranks) rank.join();
}

TEST(GroupRates, AreThoseOfOneRankOnAll) {
  std::atomic<int> num_measured{0};
  std::atomic<int> sum{0};
  on_ranks({"", "", "", ""}, [&](Group& group) {
    const auto rates = agreed_rates(group, kNeeded, [&]() -> Result<CoreRates> {
      ++num_measured;
      return rates_of("mm=" + std::to_string(10 + group.rank()) + ",copy=5");
    });
    ASSERT_TRUE(rates) << rates.error().to_string();
    sum += static_cast<int>((*rates)[CoreRate::kMmF32] / 1e3);
    EXPECT_EQ(known_rates(group), *rates);
  });
  EXPECT_EQ(num_measured, 1);
  EXPECT_EQ(sum % 4, 0) << "ranks have different speeds";
}

TEST(GroupRates, NeedNoOtherRank) {
  on_ranks({"", ""}, [](Group& group) {
    if (group.rank() == 1) {
      const auto rates =
          agreed_rates(group, kNeeded, [] { return Result<CoreRates>(rates_of("mm=1,copy=2")); });
      ASSERT_TRUE(rates);
    }
    ASSERT_TRUE(group.all_gather({}, "later"));
    EXPECT_EQ(known_rates(group), rates_of("mm=1,copy=2"));
  });
}

// A rank that is stopped while it measures does not stop the others.
TEST(GroupRates, OfARankThatHangsAreNotWaitedForLong) {
  std::atomic<bool> is_hanging{false}, is_done{false};
  on_ranks({"", ""}, [&](Group& group) {
    const auto measure = [&]() -> Result<CoreRates> {
      if (group.rank() == 1) return rates_of("mm=2,copy=2");
      is_hanging = true;
      while (!is_done) std::this_thread::yield();
      return rates_of("mm=1,copy=1");
    };
    while (group.rank() == 1 && !is_hanging) std::this_thread::yield();
    const auto rates = agreed_rates(group, kNeeded, measure);
    is_done = true;
    ASSERT_TRUE(rates);
    EXPECT_EQ(*rates, rates_of("mm=2,copy=2")) << "what was said first stays";
  });
}

TEST(GroupRates, ThatAreGivenAreRankZerosAndAreNotMeasured) {
  on_ranks({"mm=10,copy=5", "mm=20", ""}, [](Group& group) {
    EXPECT_EQ(group.config().core_rates, rates_of("mm=10,copy=5"));
    const auto rates = agreed_rates(group, kNeeded, []() -> Result<CoreRates> {
      ADD_FAILURE() << "measured";
      return CoreRates();
    });
    ASSERT_TRUE(rates);
    EXPECT_EQ(*rates, rates_of("mm=10,copy=5"));
    if (group.rank() == 0) return;
    const std::vector<int> members = {2, 1};
    const auto pair = group.subgroup(members, "pair");
    ASSERT_TRUE(pair) << pair.error().to_string();
    EXPECT_EQ(known_rates(**pair), rates_of("mm=10,copy=5")) << "a subgroup has its parent's";
  });
}

// As under a launcher that binds each rank to a core: the ranks do not share one.
TEST(GroupRates, AreSharedByTheCoresOfAllRanks) {
  const CoreSet whole = own_cores();
  std::vector<int> cores;
  for (int c = 0; c < 1024; ++c) {
    if (whole.words[static_cast<std::size_t>(c / 64)] >> (c % 64) & 1U) cores.push_back(c);
  }
  if (cores.size() < 2) GTEST_SKIP() << "one core";
  on_ranks(
      {"", "", ""}, [](Group& group) { EXPECT_EQ(cores_of(group), std::min(2, granted_cores())); },
      [&](int rank) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cores[static_cast<std::size_t>(rank % 2)], &one);
        ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
      });
  on_ranks({"", ""}, [](Group& group) { EXPECT_EQ(cores_of(group), usable_cores()); });
}

TEST(GroupRates, ThatCannotBeMeasuredAreAnError) {
  on_ranks({""}, [](Group& group) {
    const auto failed = agreed_rates(
        group, kNeeded, []() -> Result<CoreRates> { return fail(ErrorCode::kOutOfMemory, "no memory"); });
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code(), ErrorCode::kOutOfMemory);
    const auto too_few = agreed_rates(group, kNeeded, [] { return Result<CoreRates>(rates_of("copy=1")); });
    ASSERT_FALSE(too_few);
    EXPECT_EQ(too_few.error().code(), ErrorCode::kInternal);
    EXPECT_TRUE(agreed_rates(group, kNeeded, [] { return Result<CoreRates>(rates_of("mm=1")); }))
        << "what one has said another may add to";
  });
}

}  // namespace
}  // namespace tandem::bootstrap
