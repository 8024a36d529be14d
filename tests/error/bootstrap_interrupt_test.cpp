// Hosts that have to look for signals: a wait for other ranks ends, and all ranks know why.
#include <gtest/gtest.h>

#include <atomic>
#include <tandem/base/interrupt.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/bootstrap/thread_ranks.hpp>
#include <thread>

namespace tandem {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{60'000};

GroupOptions options_of(const std::shared_ptr<Store>& store, int rank, int size) {
  Config config;
  config.rendezvous_timeout = kLong;
  return {.rank = rank, .size = size, .store = store, .config = config};
}

std::string create_interrupted(const std::shared_ptr<Store>& store, int rank, int size) {
  const InterruptCheck check([] { return true; });
  const auto group = Group::create(options_of(store, rank, size));
  return group ? "ok" : group.error().to_string();
}

std::string text_of(const Result<std::unique_ptr<Group>>& group) {
  return group ? "ok" : group.error().to_string();
}

TEST(Interrupts, EndTheWaitForAGroupAndLeaveNothing) {
  const auto store = make_in_process_store();
  EXPECT_EQ(create_interrupted(store, 1, 2),
            "PeerLost: group 'world': rank 1 was interrupted while it waited for rank 0");
  EXPECT_EQ(create_interrupted(store, 0, 2),
            "PeerLost: group 'world': rank 0 was interrupted while it waited for the other ranks");
  std::thread one([&] { EXPECT_EQ(text_of(Group::create(options_of(store, 1, 2))), "ok"); });
  EXPECT_EQ(text_of(Group::create(options_of(store, 0, 2))), "ok");
  one.join();
}

TEST(Interrupts, OfRank0AreToldToTheOthers) {
  const auto store = make_in_process_store();
  std::thread one([&] {
    EXPECT_EQ(text_of(Group::create(options_of(store, 1, 3))),
              "PeerLost: group 'world': rank 0 was interrupted while it waited for the other ranks");
  });
  std::atomic<bool> has_come{false};
  std::thread zero([&] {
    const InterruptCheck check([&] { return has_come.load(); });
    EXPECT_FALSE(Group::create(options_of(store, 0, 3)));
  });
  while (store->add("tandem/group/world/cursor", 0).value() == 0) std::this_thread::yield();
  has_come = true;
  zero.join();
  one.join();
}

/// A rank that rank 0 has counted gives up: rank 0 waits for it again.
TEST(Interrupts, ARankThatWasCountedComesAgain) {
  const auto store = make_in_process_store();
  std::thread zero([&] { EXPECT_EQ(text_of(Group::create(options_of(store, 0, 3))), "ok"); });
  std::atomic<bool> has_come{false};
  std::thread one([&] {
    {
      const InterruptCheck check([&] { return has_come.load(); });
      EXPECT_FALSE(Group::create(options_of(store, 1, 3)));
    }
    EXPECT_EQ(text_of(Group::create(options_of(store, 1, 3))), "ok");
  });
  while (store->add("tandem/group/world/cursor", 0).value() == 0) std::this_thread::yield();
  has_come = true;
  while (store->add("tandem/group/world/tickets", 0).value() < 2) std::this_thread::yield();
  EXPECT_EQ(text_of(Group::create(options_of(store, 2, 3))), "ok");
  one.join();
  zero.join();
}

TEST(Interrupts, PoisonTheGroup) {
  const auto result = run_thread_ranks(2, {}, [](Group& group) -> Result<void> {
    if (group.rank() == 0) {
      const InterruptCheck check([] { return true; });
      EXPECT_FALSE(group.all_gather({}, "alone"));
    }
    for (auto status = group.status();; status = group.status()) {
      if (status) continue;
      EXPECT_EQ(status.error().code(), ErrorCode::kPeerLost);
      EXPECT_EQ(status.error().text().substr(0, 60),
                "rank 0 was interrupted in exchange while it waited for rank ");
      return {};
    }
  });
  EXPECT_TRUE(result);
}

TEST(Interrupts, AreNotLookedForWithoutACheckOrWhenTheCheckSaysNo) {
  std::atomic<int> num_asked{0};
  const auto result = run_thread_ranks(2, {}, [&](Group& group) -> Result<void> {
    const InterruptCheck check([&] {
      ++num_asked;
      return false;
    });
    const Deadline deadline = Deadline::after(kLong);
    while (group.rank() == 1 && num_asked < 2 && !deadline.expired()) std::this_thread::yield();
    const auto done = group.all_gather({}, "late");
    if (!done) return tl::unexpected(done.error());
    return {};
  });
  EXPECT_TRUE(result);
  EXPECT_GE(num_asked, 2);
}

}  // namespace
}  // namespace tandem
