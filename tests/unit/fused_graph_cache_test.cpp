#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <memory>

#include "fused/call/graph_cache.hpp"
#include "support/allocation_count.hpp"
#include "unit/program_recorder.hpp"

// Calls that come again: what is one call, which graphs are void, and who keeps a place when there are more
// calls than places.

namespace tandem::fused {
namespace {

class NoGraph final : public Graph {
 public:
  Result<void> launch(Stream&) override { return {}; }
};

CachedGraph* note(GraphCache& graphs, std::int64_t call) {
  graphs.new_key().add(call);
  return graphs.note_call();
}

TEST(FusedGraphCache, CallsWithOneKeyAreCounted) {
  GraphCache graphs;
  for (int i = 1; i <= 5; ++i) {
    for (std::int64_t call = 0; call < 100; ++call) {
      const CachedGraph* const cached = note(graphs, call);
      ASSERT_NE(cached, nullptr);
      EXPECT_EQ(cached->num_calls, i) << "call " << call;
    }
  }
}

TEST(FusedGraphCache, AnythingThatDiffersIsAnotherCall) {
  const std::byte memory[2] = {};
  GraphCache graphs;
  const auto num_calls = [&](std::int64_t plan, const void* at, std::initializer_list<std::int64_t> sizes) {
    CallKey& key = graphs.new_key().add(plan).add(at);
    for (const std::int64_t size : sizes) key.add(size);
    return graphs.note_call()->num_calls;
  };
  ASSERT_EQ(num_calls(1, memory, {4, 8}), 1);
  EXPECT_EQ(num_calls(2, memory, {4, 8}), 1);
  EXPECT_EQ(num_calls(1, memory + 1, {4, 8}), 1);
  EXPECT_EQ(num_calls(1, nullptr, {4, 8}), 1);
  EXPECT_EQ(num_calls(1, memory, {8, 4}), 1);
  EXPECT_EQ(num_calls(1, memory, {4}), 1);
  EXPECT_EQ(num_calls(1, memory, {4, 8, 0}), 1);
  EXPECT_EQ(num_calls(1, memory, {4, 8}), 2);
}

TEST(FusedGraphCache, AGraphIsVoidWithoutItsMemory) {
  test::RecorderDevice device;
  const test::RecorderHandle workspace(0, 1, 64, 0, device);
  const test::RecorderHandle grown(0, 1, 128, 0, device);
  auto in_place = std::make_shared<test::RecorderHandle>(0, 1, 64, 0, device);
  const auto recorded = [&](const std::shared_ptr<symm::Handle>& with) {
    CachedGraph cached;
    cached.num_calls = 7;
    cached.graph = std::make_unique<NoGraph>();
    cached.workspace = &workspace;
    cached.in_place = with;
    return cached;
  };
  CachedGraph alone = recorded(nullptr);
  EXPECT_TRUE((can_launch(alone, {.workspace = &workspace})));
  EXPECT_FALSE((can_launch(alone, {.workspace = &grown})));
  EXPECT_EQ(alone.graph, nullptr) << "void once and for all";
  EXPECT_EQ(alone.num_calls, 1) << "it is met anew";
  EXPECT_FALSE((can_launch(alone, {.workspace = &workspace})));

  CachedGraph reads_peers = recorded(in_place);
  EXPECT_TRUE((can_launch(reads_peers, {.workspace = &workspace, .in_place = in_place.get()})));
  // Another handle at the same address cannot be told from this one by the address.
  const symm::Handle* const address = in_place.get();
  in_place.reset();
  EXPECT_FALSE((can_launch(reads_peers, {.workspace = &workspace, .in_place = address})));
  EXPECT_EQ(reads_peers.graph, nullptr);
}

TEST(FusedGraphCache, GraphsKeepTheirPlacesWhileTheyAreOfUse) {
  constexpr std::int64_t kFarTooMany = 5000;
  GraphCache graphs;
  const auto walk = [&] {
    int num_launched = 0;
    for (std::int64_t call = 0; call < kFarTooMany; ++call) {
      CachedGraph* const cached = note(graphs, call);
      if (cached == nullptr) continue;
      if (cached->graph) {
        ++num_launched;
      } else if (cached->num_calls >= 2) {
        cached->graph = std::make_unique<NoGraph>();
      }
    }
    return num_launched;
  };
  EXPECT_EQ(walk(), 0);
  // Walked through in the same order, all would drive each other out. What is met twice in a row stays.
  for (std::int64_t call = 0; call < 300; ++call) {
    note(graphs, call);
    note(graphs, call)->graph = std::make_unique<NoGraph>();
  }
  EXPECT_EQ(walk(), 300);
  EXPECT_EQ(walk(), 300);

  // Those that nobody calls any more make room.
  for (std::uint64_t i = 0; i < 2 * GraphCache::kKeptCalls; ++i) note(graphs, kFarTooMany);
  for (std::int64_t call = 10'000; call < 10'600; ++call) EXPECT_NE(note(graphs, call), nullptr);
}

TEST(FusedGraphCache, ACallThatIsKnownAllocatesNothing) {
  GraphCache graphs;
  const auto walk = [&] {
    for (std::int64_t call = 0; call < 50; ++call) {
      CallKey& key = graphs.new_key();
      for (std::int64_t word = 0; word < 100; ++word) key.add(call * word);
      EXPECT_NE(graphs.note_call(), nullptr);
    }
  };
  walk();
  const std::int64_t before = test::num_allocations();
  walk();
  EXPECT_EQ(test::num_allocations(), before);
}

}  // namespace
}  // namespace tandem::fused
