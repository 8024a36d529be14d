#include <gtest/gtest.h>

#include <cstring>
#include <tandem/bootstrap/thread_ranks.hpp>

#include "support/bytes_only_store.hpp"
#include "support/leak_oracle.hpp"
#include "support/process_ranks.hpp"

namespace tandem {
namespace {

using testing::describe;
using testing::LeakOracle;
using testing::RankFunction;
using testing::RankProcess;
using testing::run_process_ranks;

/// The ranks' numbers in `group` must be those of `members`.
Result<void> expect_members(Group& group, int mine, const std::vector<int>& members) {
  const auto all = group.all_gather(std::as_bytes(std::span(&mine, 1)), "members");
  if (!all) return tl::unexpected(all.error());
  EXPECT_EQ(all->size(), members.size());
  for (std::size_t i = 0; i < members.size(); ++i) {
    int got = -1;
    std::memcpy(&got, (*all)[i].data(), sizeof(got));
    EXPECT_EQ(got, members[i]) << group.name() << " place " << i;
  }
  return {};
}

/// Rings of two: every rank is in two groups that overlap with its neighbours'. Even ranks make and use them
/// in one order, odd ranks in the same order or in the other; each group's own calls stay in order.
Result<void> overlap(Group& world) {
  const int size = world.size();
  const int rank = world.rank();
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Group>> groups;
    std::vector<std::vector<int>> members;
    for (int low = 0; low + 1 < size; ++low) {
      if (rank != low && rank != low + 1) continue;
      members.push_back(round % 2 == 0 ? std::vector{low, low + 1} : std::vector{low + 1, low});
    }
    for (const auto& pair : members) {
      auto group = world.subgroup(pair, "pair");
      if (!group) return tl::unexpected(group.error());
      groups.push_back(*std::move(group));
    }
    for (int use = 0; use < 5; ++use) {
      for (std::size_t i = 0; i < groups.size(); ++i) {
        const auto done = expect_members(*groups[i], rank, members[i]);
        if (!done) return done;
      }
    }
    std::vector<int> everybody;
    for (int r = 0; r < size; ++r) everybody.push_back(r);
    const auto done = expect_members(world, rank, everybody);
    if (!done) return done;
  }
  return {};
}

const RankFunction kOverlap("overlap", [](RankProcess& self) -> Result<void> {
  auto world = self.create_group();
  if (!world) return tl::unexpected(world.error());
  return overlap(**world);
});

TEST(Subgroups, OverlappingOnesOfThreadsKeepApart) {
  for (const int size : {2, 3, 5}) {
    const auto result = run_thread_ranks(size, {}, overlap);
    EXPECT_TRUE(result) << "size " << size << ": " << result.error().to_string();
  }
}

TEST(Subgroups, OverlappingOnesOfProcessesKeepApart) {
  const LeakOracle oracle;
  const JobOutcome outcome = run_process_ranks(4, "overlap");
  EXPECT_TRUE(outcome.status()) << describe(outcome);
  EXPECT_EQ(oracle.leaks(), "");
}

const RankFunction kUserStore("user_store", [](RankProcess& self) -> Result<void> {
  self.context.store = std::make_shared<test::BytesOnly>(self.context.store);
  for (int round = 0; round < 3; ++round) {
    auto world = self.create_group();
    if (!world) return tl::unexpected(world.error());
    EXPECT_TRUE((*world)->store().carries_files());
    const auto done = overlap(**world);
    if (!done) return done;
  }
  return {};
});

TEST(UserStore, OneWithoutFilesWorksAndLeavesNothing) {
  const LeakOracle oracle;
  const JobOutcome outcome = run_process_ranks(3, "user_store");
  EXPECT_TRUE(outcome.status()) << describe(outcome);
  EXPECT_EQ(oracle.leaks(), "");
}

TEST(Group, AThousandLivesOfOneNameLeakNothing) {
  const LeakOracle oracle;
  const auto store = make_in_process_store();
  for (int i = 0; i < 1'000; ++i) {
    const auto group = Group::create({0, 1, "again", store, {}});
    ASSERT_TRUE(group) << "life " << i << ": " << group.error().to_string();
  }
  EXPECT_EQ(oracle.leaks(), "");
}

const RankFunction kManyLives("many_lives", [](RankProcess& self) -> Result<void> {
  const LeakOracle* oracle = nullptr;
  std::unique_ptr<LeakOracle> made;
  for (int i = 0; i < 300; ++i) {
    auto group = self.create_group("again");
    if (!group) return tl::unexpected(group.error());
    group->reset();
    if (i == 0) oracle = (made = std::make_unique<LeakOracle>()).get();
  }
  EXPECT_EQ(oracle->leaks(), "");
  return {};
});

TEST(Group, ManyLivesOfOneNameInProcessesLeakNothing) {
  const JobOutcome outcome = run_process_ranks(3, "many_lives");
  EXPECT_TRUE(outcome.status()) << describe(outcome);
}

TEST(Group, ExtensionsEndBeforeTheGroup) {
  struct Witness {
    Group& group;
    bool& was_usable;
    ~Witness() { was_usable = group.status().has_value() && group.store().add("key", 0).has_value(); }
  };
  bool was_usable = false;
  const auto result = run_thread_ranks(1, {}, [&](Group& group) -> Result<void> {
    const auto make = [&] { return std::make_shared<Witness>(Witness{group, was_usable}); };
    Witness& first = group.extension<Witness>(make);
    EXPECT_EQ(&group.extension<Witness>(make), &first) << "made once";
    was_usable = false;  // the temporary's destructor has written it
    return {};
  });
  EXPECT_TRUE(result);
  EXPECT_TRUE(was_usable);
}

TEST(Group, ExtensionsAreFoundByTheirTypeAndName) {
  const auto result = run_thread_ranks(1, {}, [](Group& group) -> Result<void> {
    const auto number = [](int value) { return [value] { return std::make_shared<int>(value); }; };
    EXPECT_EQ(group.extension<int>("same name", number(1)), 1);
    const auto text = [] { return std::make_shared<std::string>("of another type"); };
    EXPECT_EQ(group.extension<std::string>("same name", text), "of another type");
    EXPECT_EQ(group.extension<int>("same name", number(2)), 1);
    EXPECT_EQ(group.extension<int>("another name", number(3)), 3);
    EXPECT_EQ(group.extension<int>(number(4)), 4) << "without a name";
    EXPECT_EQ(group.extension<int>(number(5)), 4);
    return {};
  });
  EXPECT_TRUE(result);
}

}  // namespace
}  // namespace tandem
