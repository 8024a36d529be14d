// Hosts that wait for each other in different groups: found at once, and told on every rank with the groups
// and the calls. Hosts that wait in different groups and form no circle are left alone.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>

#include "support/opposite_order.hpp"
#include "support/process_ranks.hpp"

namespace tandem::testing {
namespace {

using std::chrono::milliseconds;

// Far behind the time in which a circle is found: what ends by it fails with kTimeout.
Config patient() {
  Config config;
  config.log_level = LogLevel::kOff;
  config.op_timeout = config.rendezvous_timeout = milliseconds(30'000);
  return config;
}

using Meeting = Result<void> (*)(Group&, Device&);

Result<void> rendezvous(Group& group, Device& device) {
  auto tensor = symm::empty({64}, DType::kF32, device);
  if (!tensor) return tl::unexpected(tensor.error());
  auto handle = symm::rendezvous(*tensor, group);
  if (!handle) return tl::unexpected(handle.error());
  return {};
}
Result<void> exchange(Group& group, Device& /*device*/) {
  auto all = group.all_gather({}, "news of all");
  if (!all) return tl::unexpected(all.error());
  return {};
}
Result<void> workspace(Group& group, Device& device) {
  auto handle = symm::workspace(group, device, 1 << 20);
  if (!handle) return tl::unexpected(handle.error());
  return {};
}
Result<void> synchronized_gather(Group& group, Device& device) {
  auto stream = device.create_stream().value();
  MixedCall call(MixedOp::kGather, 8, group);
  if (auto done = call.enqueue(group, *stream); !done) return done;
  return stream->synchronize();
}

struct Kind {
  const char* name;
  Meeting meet;
};
constexpr Kind kKinds[] = {{"rendezvous", rendezvous},
                           {"exchange", exchange},
                           {"workspace", workspace},
                           {"synchronized_gather", synchronized_gather}};

void expect_circle(const Result<void>& result, std::initializer_list<std::string_view> pieces) {
  expect_error(result, ErrorCode::kMismatch, "a circle of waits: ");
  for (const std::string_view piece : pieces) expect_error(result, ErrorCode::kMismatch, piece);
}

std::string name_of_kinds(const ::testing::TestParamInfo<std::tuple<Kind, Kind>>& info) {
  return std::string(std::get<0>(info.param).name) + "_and_" + std::get<1>(info.param).name;
}

class CircleOfWaits : public ::testing::TestWithParam<std::tuple<Kind, Kind>> {};
INSTANTIATE_TEST_SUITE_P(Of, CircleOfWaits,
                         ::testing::Combine(::testing::ValuesIn(kKinds), ::testing::ValuesIn(kKinds)),
                         name_of_kinds);

// Rank 0 begins with the first group, rank 1 with the second.
TEST_P(CircleOfWaits, ThroughTwoGroupsIsToldOnBothRanks) {
  const Kind kinds[] = {std::get<0>(GetParam()), std::get<1>(GetParam())};
  expect_ok(run_symm_ranks(2, patient(), [&](SymmRank& rank) -> Result<void> {
    auto second = twin_of(rank.group, "second");
    if (!second) return tl::unexpected(second.error());
    Group* const groups[] = {&rank.group, second->get()};
    const int first = rank.rank();
    expect_circle(kinds[first].meet(*groups[first], *rank.device),
                  {"rank 0", "waits for rank 1 in group 'world'", "rank 1",
                   "waits for rank 0 in group 'world/second[0,1]'", "in the same order on all ranks"});
    for (Group* group : groups) expect_circle(group->status(), {});
    return {};
  }));
}

Result<void> fail_round_a_ring(Group& world) {
  return run_as_rank(world, [](SymmRank& rank) -> Result<void> {
    std::unique_ptr<Group> pairs[3];
    for (int p = 0; p < 3; ++p) {
      const std::array members{p, (p + 1) % 3};
      if (rank.rank() != members[0] && rank.rank() != members[1]) continue;
      auto made = rank.group.subgroup(members, "pair");
      if (!made) return tl::unexpected(made.error());
      pairs[p] = *std::move(made);
    }
    expect_circle(exchange(*pairs[rank.rank()], *rank.device),
                  {"in group 'world/pair[0,1]'", "in group 'world/pair[1,2]'", "in group 'world/pair[2,0]'"});
    return rank.group.status();
  });
}

TEST(CircleOfWaitsInARing, IsToldOnAllRanks) {
  expect_ok(run_thread_ranks(3, patient(), fail_round_a_ring));
}

const RankFunction kRing("circle_in_a_ring", [](RankProcess& self) -> Result<void> {
  const auto group = self.create_group();
  if (!group) return tl::unexpected(group.error());
  return fail_round_a_ring(**group);
});

TEST(CircleOfWaitsInARing, OfProcessesIsToldOnAllRanks) {
  const JobOutcome outcome = run_process_ranks(3, "circle_in_a_ring", {}, RankOptions{.config = patient()});
  EXPECT_TRUE(outcome.status()) << describe(outcome);
}

// A stream does one thing after the other: two groups on one stream wait for each other for ever, too.
TEST(CircleOfWaitsOnStreams, OneStreamForBothGroups) {
  expect_ok(run_symm_ranks(2, patient(), [](SymmRank& rank) -> Result<void> {
    auto second = twin_of(rank.group, "second");
    if (!second) return tl::unexpected(second.error());
    Group* const groups[] = {&rank.group, second->get()};
    std::deque<MixedCall> calls;
    for (const int i : {rank.rank(), 1 - rank.rank()}) {
      EXPECT_TRUE(calls.emplace_back(MixedOp::kGather, 8, *groups[i]).enqueue(*groups[i], *rank.stream));
    }
    expect_circle(rank.stream->synchronize(),
                  {"in group 'world', call #", "in group 'world/second[0,1]', call #", "all_gather"});
    for (MixedCall& call : calls) EXPECT_TRUE(call.is_untouched());
    return {};
  }));
}

// A host is held back that is too many calls ahead.
TEST(CircleOfWaitsOnStreams, MoreCallsOfOneGroupThanMayBeQueued) {
  expect_ok(run_symm_ranks(2, patient(), [](SymmRank& rank) -> Result<void> {
    auto second = twin_of(rank.group, "second");
    if (!second) return tl::unexpected(second.error());
    Group* const groups[] = {&rank.group, second->get()};
    MixedCall call(MixedOp::kGather, 1, rank.group);
    Result<void> result;
    for (int i = 0; i < 3 * rank.device->max_queued_ops() && result; ++i)
      result = call.enqueue(*groups[rank.rank()], *rank.stream);
    expect_circle(result, {"in group 'world', call #", "in group 'world/second[0,1]', call #"});
    return {};
  }));
}

// Each rank has a thread for each group; one of them is late on either rank, so that both ranks wait for each
// other in different groups. Nobody waits in a circle: the late threads come.
TEST(NoCircleOfWaits, WhereEveryGroupHasAThread) {
  for (const Kind& kind : kKinds) {
    expect_ok(run_symm_ranks(2, patient(), [&](SymmRank& rank) -> Result<void> {
      auto second = twin_of(rank.group, "second");
      if (!second) return tl::unexpected(second.error());
      Group* const groups[] = {&rank.group, second->get()};
      Result<void> results[2];
      const auto run = [&](int i) {
        results[i] = exchange(*groups[i], *rank.device);  // this thread uses the group
        if (i != rank.rank()) std::this_thread::sleep_for(milliseconds(900));
        if (results[i]) results[i] = kind.meet(*groups[i], *rank.device);
      };
      // Made by the thread that uses the one, on either rank.
      std::thread other(run, 1 - rank.rank());
      run(rank.rank());
      other.join();
      return results[0] ? results[1] : results[0];
    }));
  }
}

// Rank 1's stream is busy; its host waits in the other group for rank 0's, which waits for that stream's
// call. The call is queued, so it comes.
TEST(NoCircleOfWaits, WhereTheCallIsQueuedBehindOtherWork) {
  expect_ok(run_symm_ranks(2, patient(), [](SymmRank& rank) -> Result<void> {
    auto second = twin_of(rank.group, "second");
    if (!second) return tl::unexpected(second.error());
    MixedGroup first{&rank.group, rank.device->create_stream().value()};
    if (rank.rank() == 1) {
      if (auto done = first.stream->sleep(milliseconds(900)); !done) return done;
    }
    if (auto done = first.call(MixedOp::kGather, 8); !done) return done;
    if (rank.rank() == 0) {
      if (auto done = first.finish(); !done) return done;
    }
    if (auto done = exchange(**second, *rank.device); !done) return done;
    return first.finish();
  }));
}

// Rank 0 waits for rank 1, which waits in another group for rank 2, which is nowhere: the error says so.
TEST(LateRank, ThatWaitsInAnotherGroupIsSaidToDoSo) {
  Config config = patient();
  config.rendezvous_timeout = milliseconds(800);
  expect_ok(run_symm_ranks(3, config, [&](SymmRank& rank) -> Result<void> {
    std::unique_ptr<Group> pairs[2];
    for (int p = 0; p < 2; ++p) {
      const std::array members{p, p + 1};
      if (rank.rank() != members[0] && rank.rank() != members[1]) continue;
      auto made = rank.group.subgroup(members, "pair");
      if (!made) return tl::unexpected(made.error());
      pairs[p] = *std::move(made);
    }
    if (rank.rank() == 0) {
      const auto met = exchange(*pairs[0], *rank.device);
      expect_error(met, ErrorCode::kTimeout, "rank 0 waited");
      expect_error(met, ErrorCode::kTimeout,
                   "waits for rank 1 in group 'world/pair[1,2]', exchange 'news of all'");
    } else if (rank.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(300));
      expect_error(exchange(*pairs[1], *rank.device), ErrorCode::kTimeout, "waits for nobody in this group");
    } else {
      std::this_thread::sleep_for(milliseconds(1500));
    }
    return {};
  }));
}

}  // namespace
}  // namespace tandem::testing
