// A scatter whose sum reads the chunks where they lie in the ranks' memory gives the bits of the one that
// copies them, and a gather that reads the shards there moves the same bytes, also where a rank copies all
// the same. On the CPU, with a backend that can do both.
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
  /// `gathers`: not refused, as if addresses did not fit.
  explicit LayersBackend(bool gathers = true) : gathers_(gathers) {}
  [[nodiscard]] Result<void> reduce_stack(const coll::ReduceStackArgs&, Stream&) override {
    return fail(ErrorCode::kInternal, "the chunks were copied");
  }
  [[nodiscard]] int max_layers() const override { return 4; }
  [[nodiscard]] Result<void> reduce_layers(const coll::ReduceLayersArgs& args, const coll::RanksMeet& meet,
                                           Stream& stream) override {
    ++num_sums_;
    const std::vector<const void*> layers(args.layers.begin(), args.layers.end());
    return launch_and_meet([layers, out = args.out] { add_up(layers, out); }, meet, stream);
  }
  [[nodiscard]] bool gathers_layers(std::int64_t layer_bytes) const override { return layer_bytes % 16 == 0; }
  [[nodiscard]] Result<bool> gather_layers(const coll::GatherLayersArgs& args, const coll::RanksMeet& meet,
                                           Stream& stream) override {
    if (!gathers_) return false;
    ++num_gathers_;
    const std::vector<const void*> layers(args.layers.begin(), args.layers.end());
    const auto gather = [layers, num_bytes = args.layer_bytes, out = static_cast<std::byte*>(args.out)] {
      for (std::size_t i = 0; i < layers.size(); ++i) {
        std::memcpy(out + static_cast<std::int64_t>(i) * num_bytes, layers[i],
                    static_cast<std::size_t>(num_bytes));
      }
    };
    if (auto done = launch_and_meet(gather, meet, stream); !done) return tl::unexpected(done.error());
    return true;
  }
  [[nodiscard]] int num_sums() const { return num_sums_; }
  [[nodiscard]] int num_gathers() const { return num_gathers_; }

 private:
  template <class Kernel>
  static Result<void> launch_and_meet(Kernel kernel, const coll::RanksMeet& meet, Stream& stream) {
    const auto shared = std::make_shared<Kernel>(std::move(kernel));
    auto done = tandem::cpu::launch(stream, tandem::cpu::Task([shared]() -> Result<void> {
                                      (*shared)();
                                      return {};
                                    }));
    return done ? meet.workspace.barrier(stream, meet.channel) : done;
  }
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

  bool gathers_;
  int num_sums_ = 0;
  int num_gathers_ = 0;
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
      if (mine.size > 0) num_sums += 2;
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

TEST_P(CollWhereTheyLie, GathersMoveTheSameBytesAlsoBesideARankThatCopies) {
  for (const int copying_rank : {-1, 0, 1}) {
    expect_ok(run_symm_ranks(GetParam(), {}, [copying_rank](SymmRank& rank) -> Result<void> {
      const auto backend = std::make_shared<LayersBackend>(rank.rank() != copying_rank);
      rank.device->attach<coll::Backend>(backend);
      constexpr std::int64_t kColumns = 4;
      int num_gathers = 0;
      for (const std::int64_t rows : {3, 1, 17}) {
        const std::int64_t total = rows * rank.size();
        GuardedBytes input({rows, kColumns}, DType::kF32);
        GuardedBytes output({total, kColumns}, DType::kF32);
        const TensorView in = input.view({rows, kColumns}, DType::kF32);
        const TensorView out = output.view({total, kColumns}, DType::kF32);
        for (std::int64_t i = 0; i < in.numel(); ++i) in.data_as<float>()[i] = value_of(rank.rank(), i);
        for (int call = 0; call < 2; ++call) {
          if (auto done = coll::all_gather({.input = in, .output = out}, rank.group, *rank.stream); !done) {
            return done;
          }
        }
        if (auto done = rank.finish(); !done) return done;
        if (rank.size() > 1 && rank.rank() != copying_rank) num_gathers += 4;
        for (std::int64_t i = 0; i < out.numel(); ++i) {
          EXPECT_EQ(out.data_as<float>()[i], value_of(static_cast<int>(i / in.numel()), i % in.numel()))
              << "rank " << rank.rank() << ", element " << i;
        }
        EXPECT_TRUE(output.guards_are_whole());
      }
      EXPECT_EQ(backend->num_gathers(), num_gathers) << "one to publish, one to gather";
      return {};
    }));
  }
}

}  // namespace
}  // namespace tandem::testing
