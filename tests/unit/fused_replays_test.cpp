#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "fused/replays.hpp"
#include "support/allocation_count.hpp"
#include "unit/pipeline_recorder.hpp"

// Calls that come again: what is one call, which graphs are void, and who keeps a place when there are more
// calls than places.

namespace tandem::fused {
namespace {

class NoGraph final : public Graph {
 public:
  Result<void> launch(Stream&) override { return {}; }
};

Replay* note(Replays& replays, std::int64_t call) {
  replays.new_key().add(call);
  return replays.note_call();
}

TensorView matrix(std::int64_t rows, std::int64_t columns, std::byte* data) {
  return TensorView::contiguous(data, {rows, columns}, DType::kBF16, {DeviceKind::kCpu, 0});
}

TEST(FusedReplays, CallsWithOneKeyAreCounted) {
  Replays replays;
  for (int i = 1; i <= 5; ++i) {
    for (std::int64_t call = 0; call < 100; ++call) {
      const Replay* const replay = note(replays, call);
      ASSERT_NE(replay, nullptr);
      EXPECT_EQ(replay->num_calls, i) << "call " << call;
    }
  }
}

TEST(FusedReplays, AnythingThatDiffersIsAnotherCall) {
  std::array<std::byte, 256> memory{};
  const TensorView a = matrix(4, 8, memory.data());
  TensorView strided = a;
  strided.strides[0] = 16;
  TensorView half = a;
  half.dtype = DType::kF16;
  const std::vector<TensorView> others = {matrix(4, 8, memory.data() + 64), matrix(8, 4, memory.data()),
                                          matrix(4, 8, nullptr), strided, half};
  Replays replays;
  replays.new_key().add(a);
  ASSERT_EQ(replays.note_call()->num_calls, 1);
  for (const TensorView& other : others) {
    replays.new_key().add(other);
    EXPECT_EQ(replays.note_call()->num_calls, 1) << to_string(other);
  }
  // The end of one list is not the beginning of the next.
  const std::vector<TensorView> one = {a};
  const std::vector<TensorView> two = {a, a};
  replays.new_key().add(one).add(two);
  EXPECT_EQ(replays.note_call()->num_calls, 1);
  replays.new_key().add(two).add(one);
  EXPECT_EQ(replays.note_call()->num_calls, 1);
  replays.new_key().add(std::optional<TensorView>()).add(one);
  EXPECT_EQ(replays.note_call()->num_calls, 1);
  replays.new_key().add(std::optional<TensorView>(a)).add(one);
  EXPECT_EQ(replays.note_call()->num_calls, 1);

  replays.new_key().add(a);
  EXPECT_EQ(replays.note_call()->num_calls, 2);
}

TEST(FusedReplays, AGraphIsVoidWithoutItsMemory) {
  test::RecorderDevice device;
  const test::RecorderHandle workspace(0, 1, 64, 0, device);
  const test::RecorderHandle grown(0, 1, 128, 0, device);
  auto in_place = std::make_shared<test::RecorderHandle>(0, 1, 64, 0, device);
  const auto recorded = [&](const std::shared_ptr<symm::Handle>& with) {
    Replay replay;
    replay.num_calls = 7;
    replay.graph = std::make_unique<NoGraph>();
    replay.workspace = &workspace;
    replay.in_place = with;
    return replay;
  };
  Replay alone = recorded(nullptr);
  EXPECT_TRUE(can_launch(alone, &workspace, nullptr));
  EXPECT_FALSE(can_launch(alone, &grown, nullptr));
  EXPECT_EQ(alone.graph, nullptr) << "void once and for all";
  EXPECT_EQ(alone.num_calls, 1) << "it is met anew";
  EXPECT_FALSE(can_launch(alone, &workspace, nullptr));

  Replay reads_peers = recorded(in_place);
  EXPECT_TRUE(can_launch(reads_peers, &workspace, in_place.get()));
  // Another handle at the same address cannot be told from this one by the address.
  const symm::Handle* const address = in_place.get();
  in_place.reset();
  EXPECT_FALSE(can_launch(reads_peers, &workspace, address));
  EXPECT_EQ(reads_peers.graph, nullptr);
}

TEST(FusedReplays, GraphsKeepTheirPlacesWhileTheyAreOfUse) {
  constexpr std::int64_t kFarTooMany = 5000;
  Replays replays;
  const auto walk = [&] {
    int num_launched = 0;
    for (std::int64_t call = 0; call < kFarTooMany; ++call) {
      Replay* const replay = note(replays, call);
      if (replay == nullptr) continue;
      if (replay->graph) {
        ++num_launched;
      } else if (replay->num_calls >= 2) {
        replay->graph = std::make_unique<NoGraph>();
      }
    }
    return num_launched;
  };
  EXPECT_EQ(walk(), 0);
  // Walked through in the same order, all would drive each other out. What is met twice in a row stays.
  for (std::int64_t call = 0; call < 300; ++call) {
    note(replays, call);
    note(replays, call)->graph = std::make_unique<NoGraph>();
  }
  EXPECT_EQ(walk(), 300);
  EXPECT_EQ(walk(), 300);

  // Those that nobody calls any more make room.
  for (std::uint64_t i = 0; i < 2 * Replays::kKeptCalls; ++i) note(replays, kFarTooMany);
  for (std::int64_t call = 10'000; call < 10'600; ++call) EXPECT_NE(note(replays, call), nullptr);
}

TEST(FusedReplays, ACallThatIsKnownAllocatesNothing) {
  Replays replays;
  const std::vector<TensorView> views(12, matrix(4, 8, nullptr));
  const auto walk = [&] {
    for (std::int64_t call = 0; call < 50; ++call) {
      replays.new_key().add(call).add(views);
      EXPECT_NE(replays.note_call(), nullptr);
    }
  };
  walk();
  const std::int64_t before = test::num_allocations();
  walk();
  EXPECT_EQ(test::num_allocations(), before);
}

}  // namespace
}  // namespace tandem::fused
