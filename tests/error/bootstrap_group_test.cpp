#include <gtest/gtest.h>

#include <memory>
#include <tandem/bootstrap/group.hpp>
#include <tandem/bootstrap/thread_ranks.hpp>
#include <thread>
#include <vector>

#include "support/bytes_only_store.hpp"

namespace tandem {
namespace {

using std::chrono::milliseconds;

Config with_timeout(milliseconds timeout) {
  Config config;
  config.rendezvous_timeout = timeout;
  return config;
}

GroupOptions options_of(std::shared_ptr<Store> store, int rank, int size, milliseconds timeout) {
  return {rank, size, "world", std::move(store), with_timeout(timeout)};
}

std::string text_of(const Result<std::unique_ptr<Group>>& group) {
  return group ? "ok" : group.error().to_string();
}

TEST(GroupErrors, RanksAndSizesOutOfRangeNameTheLimits) {
  const auto store = make_in_process_store();
  EXPECT_EQ(text_of(Group::create(options_of(store, 2, 2, milliseconds(50)))),
            "InvalidArgument: group 'world': rank 2, need 0 to 1");
  EXPECT_EQ(text_of(Group::create(options_of(store, -1, 2, milliseconds(50)))),
            "InvalidArgument: group 'world': rank -1, need 0 to 1");
  EXPECT_EQ(text_of(Group::create(options_of(store, 0, 0, milliseconds(50)))),
            "InvalidArgument: group 'world': size 0, need 1 to 4096");
  EXPECT_EQ(text_of(Group::create(options_of(nullptr, 0, 1, milliseconds(50)))),
            "InvalidArgument: group 'world': no store");
  EXPECT_EQ(text_of(Group::create(options_of(store, 0, 1, milliseconds(0)))).substr(0, 16),
            "InvalidArgument:");
}

TEST(GroupErrors, OneRankIsAGroupByAStoreThatCarriesNoFiles) {
  const auto store = std::make_shared<test::BytesOnly>(make_in_process_store());
  const auto group = Group::create(options_of(store, 0, 1, milliseconds(5'000)));
  ASSERT_EQ(text_of(group), "ok");
  const auto all = (*group)->all_gather({}, "nothing");
  EXPECT_TRUE(all && all->size() == 1);
}

TEST(GroupErrors, MissingRanksAreNamedOnEveryRankThatCame) {
  const auto store = make_in_process_store();
  // Whoever's time ends first: who came and left is not missing.
  for (const auto& [time_of_0, time_of_2] : {std::pair(500, 1'000), std::pair(550, 500)}) {
    std::thread two([&, time = milliseconds(time_of_2)] {
      EXPECT_EQ(text_of(Group::create(options_of(store, 2, 4, time))),
                "Timeout: group 'world': ranks 1, 3 of 4 did not come in time");
    });
    EXPECT_EQ(text_of(Group::create(options_of(store, 0, 4, milliseconds(time_of_0)))),
              "Timeout: group 'world': ranks 1, 3 of 4 did not come in time");
    two.join();
  }
}

TEST(GroupErrors, ANameThatFailedToFormWorksAtTheNextTry) {
  const auto store = make_in_process_store();
  EXPECT_FALSE(Group::create(options_of(store, 1, 2, milliseconds(30))));
  EXPECT_FALSE(Group::create(options_of(store, 0, 2, milliseconds(30))));
  EXPECT_FALSE(Group::create(options_of(store, 1, 2, milliseconds(30))));
  std::thread other(
      [&] { EXPECT_EQ(text_of(Group::create(options_of(store, 1, 2, milliseconds(5'000)))), "ok"); });
  EXPECT_EQ(text_of(Group::create(options_of(store, 0, 2, milliseconds(5'000)))), "ok");
  other.join();
}

TEST(GroupErrors, ASecondHolderOfARankIsRefusedAndTheOthersGoOn) {
  const auto store = make_in_process_store();
  std::unique_ptr<Group> first;
  std::thread zero([&] {
    auto group = Group::create(options_of(store, 0, 2, milliseconds(5'000)));
    EXPECT_EQ(text_of(group), "ok");
    if (group) first = *std::move(group);
  });
  while (store->add("tandem/group/world/seat/0", 0).value() == 0) std::this_thread::yield();
  EXPECT_EQ(text_of(Group::create(options_of(store, 0, 2, milliseconds(50)))),
            "InvalidArgument: group 'world': rank 0 is taken already: close the open group of this name, or "
            "choose another name");
  auto right = Group::create(options_of(store, 1, 2, milliseconds(5'000)));
  EXPECT_EQ(text_of(right), "ok");
  EXPECT_EQ(text_of(Group::create(options_of(store, 1, 2, milliseconds(50)))),
            "InvalidArgument: group 'world': rank 1 is taken already: close the open group of this name, or "
            "choose another name");
  zero.join();
  EXPECT_TRUE(right && (*right)->status()) << "the refused one must not disturb";
}

TEST(GroupErrors, DifferentSizesAreAMismatchOnBothSides) {
  const auto store = make_in_process_store();
  const std::string expected =
      "Mismatch: group 'world': ranks disagree: rank 0 has size 2 version 2; rank 1 has size 3 version 2";
  std::thread other(
      [&] { EXPECT_EQ(text_of(Group::create(options_of(store, 1, 3, milliseconds(5'000)))), expected); });
  EXPECT_EQ(text_of(Group::create(options_of(store, 0, 2, milliseconds(5'000)))), expected);
  other.join();
}

TEST(GroupErrors, SubgroupsRefuseWrongLists) {
  const auto result =
      run_thread_ranks(3, with_timeout(milliseconds(5'000)), [](Group& group) -> Result<void> {
        const auto code_of = [&](std::vector<int> ranks) {
          const auto made = group.subgroup(ranks, "sub");
          return made ? "ok" : std::string(to_string(made.error().code()));
        };
        const int me = group.rank();
        const int next = (me + 1) % 3;
        EXPECT_EQ(code_of({next}), "InvalidArgument") << "not a member";
        EXPECT_EQ(code_of({me, me}), "InvalidArgument") << "twice";
        EXPECT_EQ(code_of({me, 3}), "InvalidArgument") << "out of range";
        EXPECT_EQ(code_of({me, -1}), "InvalidArgument") << "out of range";
        EXPECT_EQ(code_of({}), "InvalidArgument") << "empty";
        EXPECT_TRUE(group.status()) << "refused arguments poison nothing";
        return {};
      });
  EXPECT_TRUE(result) << result.error().to_string();
}

TEST(GroupErrors, DifferentExchangesAreAMismatchThatListsAll) {
  std::vector<std::string> texts(3);
  const auto result =
      run_thread_ranks(3, with_timeout(milliseconds(5'000)), [&](Group& group) -> Result<void> {
        const auto gathered = group.all_gather({}, group.rank() == 1 ? "beta" : "alpha");
        texts[static_cast<std::size_t>(group.rank())] = gathered ? "ok" : gathered.error().to_string();
        return {};
      });
  ASSERT_TRUE(result);
  for (const std::string& text : texts) {
    EXPECT_EQ(text,
              "Mismatch: ranks disagree about an exchange: rank 0 'alpha' (0 bytes); rank 1 'beta' (0 "
              "bytes); rank 2 "
              "'alpha' (0 bytes)");
  }
}

}  // namespace
}  // namespace tandem
