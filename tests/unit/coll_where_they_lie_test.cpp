// A scatter whose sum reads the chunks where they lie in the ranks' memory gives the bits of the one that
// copies them. On the CPU, with a backend that can do it.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <tandem/base/shard.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/cpu/launch.hpp>
#include <utility>
#include <vector>

#include "coll/backend.hpp"
#include "coll/cpu/stack_sum.hpp"
#include "support/guarded_bytes.hpp"
#include "support/symm_rank.hpp"

namespace tandem::testing {
namespace {

// Takes layers anywhere when the stream gets there.
class LayersBackend final : public coll::Backend {
 public:
  [[nodiscard]] Result<void> reduce_stack(const coll::ReduceStackArgs&, Stream&) override {
    return fail(ErrorCode::kInternal, "the chunks were copied");
  }
  [[nodiscard]] int max_layers() const override { return 4; }
  [[nodiscard]] Result<void> reduce_layers(const coll::ReduceLayersArgs& args, const coll::EndBarrier& end,
                                           Stream& stream) override {
    ++num_sums_;
    const std::vector<const void*> layers(args.layers.begin(), args.layers.end());
    if (auto met = end.workspace.barrier(stream, end.channel + 1); !met) return met;
    auto done = tandem::cpu::launch(
        stream, tandem::cpu::Task([sum = std::make_shared<Sum>(Sum{layers, args.out})]() -> Result<void> {
          add_up(sum->layers, sum->out);
          return {};
        }));
    return done ? end.workspace.barrier(stream, end.channel) : done;
  }
  [[nodiscard]] int num_sums() const { return num_sums_; }

 private:
  struct Sum {
    std::vector<const void*> layers;
    TensorView out;
  };
  static void add_up(const std::vector<const void*>& layers, const TensorView& out) {
    std::vector<float> stack;
    for (const void* layer : layers) {
      const auto* values = static_cast<const float*>(layer);
      stack.insert(stack.end(), values, values + out.numel());
    }
    coll::cpu::StackSum sum;
    sum.stack = stack.data();
    sum.num_layers = static_cast<std::int64_t>(layers.size());
    sum.out = out;
    coll::cpu::add_up(sum);
  }

  int num_sums_ = 0;
};

float value_of(int rank, std::int64_t idx) {
  return static_cast<float>(1 + rank) / static_cast<float>(3 + idx);
}

class CollWhereTheyLie : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(World, CollWhereTheyLie, ::testing::Values(1, 2, 3, 4),
                         ::testing::PrintToStringParamName());

TEST_P(CollWhereTheyLie, SumsHaveTheSameBitsAndCallsAreKeptApart) {
  expect_ok(run_symm_ranks(GetParam(), {}, [](SymmRank& rank) -> Result<void> {
    const auto backend = std::make_shared<LayersBackend>();
    rank.device->attach<coll::Backend>(backend);
    constexpr std::int64_t kColumns = 5;
    int num_sums = 0;
    for (const std::int64_t total : {7, 1, 64, 0}) {
      const Shard mine = shard_of(total, rank.size(), rank.rank());
      GuardedBytes input({total, kColumns}, DType::kF32);
      GuardedBytes output({mine.size, kColumns}, DType::kF32);
      const TensorView in = input.view({total, kColumns}, DType::kF32);
      const TensorView out = output.view({mine.size, kColumns}, DType::kF32);
      for (std::int64_t i = 0; i < in.numel(); ++i) in.data_as<float>()[i] = value_of(rank.rank(), i);
      // Twice: the second must not overwrite what a slower rank still reads for the first.
      for (int call = 0; call < 2; ++call) {
        if (auto done =
                coll::reduce_scatter({.input = in, .output = out, .bias = {}}, rank.group, *rank.stream);
            !done) {
          return done;
        }
      }
      if (auto done = rank.finish(); !done) return done;
      if (total > 0) num_sums += 2;
      for (std::int64_t i = 0; i < out.numel(); ++i) {
        float want = value_of(0, mine.offset * kColumns + i);
        for (int q = 1; q < rank.size(); ++q) want += value_of(q, mine.offset * kColumns + i);
        EXPECT_EQ(out.data_as<float>()[i], want) << "rank " << rank.rank() << ", element " << i;
      }
      EXPECT_TRUE(output.guards_are_whole());
    }
    EXPECT_EQ(backend->num_sums(), num_sums);
    return {};
  }));
}

}  // namespace
}  // namespace tandem::testing
