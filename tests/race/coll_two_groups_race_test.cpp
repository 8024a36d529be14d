// Groups over the same ranks, whose ops the hosts call in opposite orders, all problems new: nobody waits for
// another host. Ranks are threads, for the thread sanitizer.
#include <gtest/gtest.h>

#include <thread>

#include "support/opposite_order.hpp"

namespace tandem::testing {
namespace {

// A host that waited for another one would end here, with an error.
Config impatient() {
  Config config;
  config.log_level = LogLevel::kOff;
  config.op_timeout = config.rendezvous_timeout = std::chrono::milliseconds(20'000);
  return config;
}

struct Case {
  MixedOp op;
  int world;
};

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return to_string(info.param.op) + "_" + std::to_string(info.param.world);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const MixedOp op : kMixedOps) {
    for (const int world : {2, 3, 4}) all.push_back({op, world});
  }
  return all;
}

class TwoGroups : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Of, TwoGroups, ::testing::ValuesIn(cases()), name_of);

TEST_P(TwoGroups, InOppositeOrdersWhileShapesGrow) {
  expect_ok(run_symm_ranks(GetParam().world, impatient(),
                           [](SymmRank& rank) { return call_in_opposite_orders(rank, GetParam().op, 12); }));
}

// One host thread a group.
TEST_P(TwoGroups, WithAThreadForEach) {
  expect_ok(run_symm_ranks(GetParam().world, impatient(), [](SymmRank& rank) -> Result<void> {
    auto second = twin_of(rank.group, "second");
    if (!second) return tl::unexpected(second.error());
    MixedGroup groups[] = {{&rank.group, rank.device->create_stream().value()},
                           {second->get(), rank.device->create_stream().value()}};
    Result<void> results[2];
    const auto run = [&](int i) {
      for (std::int64_t rows = 64; rows < 2000 && results[i]; rows += 311)
        results[i] = groups[i].call(GetParam().op, rows);
      if (results[i]) results[i] = groups[i].finish();
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    return results[0] ? results[1] : results[0];
  }));
}

class RingOfGroups : public ::testing::TestWithParam<MixedOp> {};
INSTANTIATE_TEST_SUITE_P(Of, RingOfGroups, ::testing::ValuesIn(kMixedOps), name_of_op);

TEST_P(RingOfGroups, WhereNoTwoPeersBeginWithTheSame) {
  expect_ok(
      run_symm_ranks(3, impatient(), [](SymmRank& rank) { return call_round_a_ring(rank, GetParam()); }));
}

// Far more calls of one group than ranks may be apart, before the first of the other.
TEST(TwoGroupsInBursts, InOppositeOrders) {
  expect_ok(run_symm_ranks(2, impatient(), [](SymmRank& rank) -> Result<void> {
    auto second = twin_of(rank.group, "second");
    if (!second) return tl::unexpected(second.error());
    MixedGroup groups[] = {{&rank.group, rank.device->create_stream().value()},
                           {second->get(), rank.device->create_stream().value()}};
    for (const int i : {rank.rank(), 1 - rank.rank()}) {
      for (std::int64_t rows = 1; rows <= 200; ++rows) {
        if (auto done = groups[i].call(rows % 2 == 0 ? MixedOp::kGather : MixedOp::kScatter, rows); !done)
          return done;
      }
    }
    for (MixedGroup& each : groups) {
      if (auto done = each.finish(); !done) return done;
    }
    return {};
  }));
}

// Rank 1's second group calls something else: that group's error on every rank, before a byte of its outputs
// changes; the other group goes on.
TEST_P(TwoGroups, AMismatchInOneLeavesTheOther) {
  expect_ok(run_symm_ranks(GetParam().world, impatient(), [](SymmRank& rank) -> Result<void> {
    auto second = twin_of(rank.group, "second");
    if (!second) return tl::unexpected(second.error());
    MixedGroup good{&rank.group, rank.device->create_stream().value()};
    auto stream = rank.device->create_stream().value();
    MixedCall bad(GetParam().op, rank.rank() == 1 ? 65 : 64, **second);
    const bool is_first = rank.rank() % 2 == 0;
    // The last to come may hear of it in the call.
    const auto enqueue_bad = [&] {
      const auto done = bad.enqueue(**second, *stream);
      if (!done) expect_error(done, ErrorCode::kMismatch, "rank 1 runs");
    };
    if (is_first) enqueue_bad();
    if (auto done = good.call(GetParam().op, 64); !done) return done;
    if (!is_first) enqueue_bad();
    expect_error(stream->synchronize(), ErrorCode::kMismatch, "rank 1 runs");
    EXPECT_TRUE(bad.is_untouched());
    return good.finish();
  }));
}

}  // namespace
}  // namespace tandem::testing
