// Wrong arguments and ranks that disagree: an error on every rank, and no byte of an output changes.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tandem/coll/collectives.hpp>

#include "support/guarded_bytes.hpp"
#include "support/symm_rank.hpp"

namespace tandem::testing {
namespace {

using coll::ReduceOp;

Config short_waits() {
  Config config;
  config.op_timeout = std::chrono::seconds(20);
  config.rendezvous_timeout = std::chrono::seconds(20);
  return config;
}

// What one rank calls; returns the error now or of the stream.
struct Call {
  std::int64_t total = 8;
  std::int64_t input_rows = 4;  // of a shard
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  bool scatter = false;
};

Result<void> make(const Call& call, SymmRank& rank, GuardedBytes& output) {
  GuardedBytes input({8, 2}, DType::kF32);
  const Dims shard = {call.input_rows, 2};
  const Dims all = {call.total, 2};
  auto done =
      call.scatter
          ? coll::reduce_scatter({.input = input.view(all, call.dtype),
                                  .output = output.view(shard, call.dtype),
                                  .op = call.op,
                                  .bias = {}},
                                 rank.group, *rank.stream)
          : coll::all_gather({.input = input.view(shard, call.dtype), .output = output.view(all, call.dtype)},
                             rank.group, *rank.stream);
  auto finished = rank.finish();
  return done ? finished : done;
}

struct Disagreement {
  std::string name;
  Call rank_0;
  Call rank_1;
  std::vector<std::string> pieces;  // of every rank's text
  bool refused_by_rank_1 = false;   // which then gets kInvalidArgument
};

void PrintTo(const Disagreement& disagreement, std::ostream* out) {
  *out << disagreement.name;
}

class CollMismatch : public ::testing::TestWithParam<Disagreement> {
 protected:
  // `warm`: the group has agreed on rank 0's call before, so that the comparison is made on the stream.
  void run(bool warm) {
    const Disagreement& c = GetParam();
    expect_ok(run_symm_ranks(2, short_waits(), [&](SymmRank& rank) -> Result<void> {
      if (warm) {
        GuardedBytes before({8, 2}, DType::kF32);
        expect_ok(make(c.rank_0, rank, before));
        // A rank that was still in it would hear there of what the other refuses.
        EXPECT_TRUE(rank.group.all_gather({}, "both know the call"));
      }
      GuardedBytes output({8, 2}, DType::kF32);
      const Result<void> result = make(rank.rank() == 0 ? c.rank_0 : c.rank_1, rank, output);
      EXPECT_TRUE(output.is_untouched()) << "rank " << rank.rank();
      const bool refuses = c.refused_by_rank_1 && rank.rank() == 1;
      for (const std::string& piece : c.pieces) {
        expect_error(result, refuses ? ErrorCode::kInvalidArgument : ErrorCode::kMismatch, piece);
      }
      return {};
    }));
  }
};

TEST_P(CollMismatch, InTheFirstCallIsAnErrorOnEveryRank) {
  run(false);
}
TEST_P(CollMismatch, InALaterCallIsAnErrorOnEveryRank) {
  run(true);
}

INSTANTIATE_TEST_SUITE_P(
    Of, CollMismatch,
    ::testing::Values(
        Disagreement{
            "total", {.total = 8, .input_rows = 4}, {.total = 7, .input_rows = 3}, {"[8, 2]", "[7, 2]"}},
        Disagreement{"dtype", {}, {.dtype = DType::kBF16}, {"f32", "bf16"}},
        Disagreement{"op", {.scatter = true}, {.op = ReduceOp::kAvg, .scatter = true}, {"sum", "avg"}},
        Disagreement{"collective", {}, {.scatter = true}, {"all_gather", "reduce_scatter"}},
        Disagreement{"arguments", {}, {.input_rows = 3}, {"[3, 2]", "rank 1 of 2", "[4, 2]"}, true}),
    [](const auto& disagreement) { return disagreement.param.name; });

// Wrong on every rank: each has its own error, and the group can go on.
void expect_refused(const std::function<Result<void>(SymmRank&)>& call,
                    const std::vector<std::string>& pieces) {
  expect_ok(run_symm_ranks(2, short_waits(), [&](SymmRank& rank) -> Result<void> {
    const auto result = call(rank);
    for (const std::string& piece : pieces) expect_error(result, ErrorCode::kInvalidArgument, piece);
    expect_ok(rank.group.status());
    GuardedBytes output({8, 2}, DType::kF32);
    expect_ok(make({}, rank, output));
    return {};
  }));
}

TEST(CollArguments, AllGatherNamesWhatDoesNotFit) {
  GuardedBytes memory(4096);
  const auto gather = [&](TensorView input, TensorView output) {
    return [=](SymmRank& rank) { return coll::all_gather({input, output}, rank.group, *rank.stream); };
  };
  const auto f32 = [&](const Dims& sizes) { return memory.view(sizes, DType::kF32); };
  expect_refused(gather(f32({4, 3}), f32({8, 2})), {"input", "[4, 3]", "[4, 2]"});
  expect_refused(gather(memory.view({4, 2}, DType::kU32), f32({8, 2})), {"u32", "f32"});
  expect_refused(gather(f32({2, 4}).movedim(0, 1), f32({8, 2})), {"input", "contiguous"});
  expect_refused(gather(f32({4, 2}), f32({8, 4}).narrow(1, 0, 2)), {"output", "contiguous"});
  expect_refused(gather(f32({}), f32({})), {"at least one dim"});
}

TEST(CollArguments, ReduceScatterNamesWhatDoesNotFit) {
  GuardedBytes memory(4096);
  const auto f32 = [&](const Dims& sizes) { return memory.view(sizes, DType::kF32); };
  const auto scatter = [&](TensorView input, TensorView output, std::optional<TensorView> bias = {},
                           ReduceOp op = ReduceOp::kSum) {
    return [=](SymmRank& rank) {
      return coll::reduce_scatter({.input = input, .output = output, .op = op, .bias = bias}, rank.group,
                                  *rank.stream);
    };
  };
  expect_refused(scatter(f32({8, 2}), f32({3, 2})), {"output", "[3, 2]", "[4, 2]"});
  expect_refused(scatter(f32({2, 8}).movedim(0, 1), f32({4, 2})), {"input", "contiguous"});
  expect_refused(scatter(memory.view({8, 2}, DType::kI32), memory.view({4, 2}, DType::kI32)), {"i32"});
  expect_refused(scatter(memory.view({8, 2}, DType::kBF16), memory.view({4, 2}, DType::kF16)),
                 {"bf16", "f16"});
  expect_refused(scatter(f32({8, 2}), f32({4, 2}), f32({3})), {"bias", "[3]"});
  expect_refused(scatter(f32({8, 2}), f32({4, 2}), {}, static_cast<ReduceOp>(7)), {"op", "7"});
}

TEST(CollArguments, AllReduceNamesWhatDoesNotFit) {
  GuardedBytes memory(4096);
  const auto f32 = [&](const Dims& sizes) { return memory.view(sizes, DType::kF32); };
  const auto reduce = [&](TensorView input, TensorView output, std::optional<TensorView> bias = {},
                          ReduceOp op = ReduceOp::kSum) {
    return [=](SymmRank& rank) {
      return coll::all_reduce({.input = input, .output = output, .op = op, .bias = bias}, rank.group,
                              *rank.stream);
    };
  };
  expect_refused(reduce(f32({8, 2}), f32({4, 2})), {"all_reduce", "output", "[4, 2]", "[8, 2]"});
  expect_refused(reduce(f32({}), f32({})), {"input", "1 to"});
  expect_refused(reduce(f32({2, 8}).movedim(0, 1), f32({8, 2})), {"input", "contiguous"});
  expect_refused(reduce(f32({8, 2}), f32({2, 8}).movedim(0, 1)), {"output", "contiguous"});
  expect_refused(reduce(memory.view({8, 2}, DType::kI32), memory.view({8, 2}, DType::kI32)), {"i32"});
  expect_refused(reduce(f32({8, 2}), f32({8, 2}), f32({3})), {"bias", "[3]"});
  expect_refused(reduce(f32({8, 2}), f32({8, 2}), {}, static_cast<ReduceOp>(7)), {"op", "7"});
  TensorView shifted = f32({8, 2});
  shifted.data = shifted.data_as<float>() + 2;
  expect_refused(reduce(f32({8, 2}), shifted), {"output", "input"});
}

TEST(CollArguments, LowContentionGatherNamesWhatDoesNotFit) {
  GuardedBytes memory(4096);
  const auto f32 = [&](const Dims& sizes) { return memory.view(sizes, DType::kF32); };
  GuardedBytes whole(4096);
  const auto out = [&](const Dims& sizes) { return whole.view(sizes, DType::kF32); };
  const auto gather = [](const TensorView& input, const TensorView& output, int dim = 0) {
    return [=](SymmRank& rank) {
      return coll::low_contention_all_gather({.input = input, .output = output, .gather_dim = dim},
                                             rank.group, *rank.stream);
    };
  };
  expect_refused(gather(f32({4, 3}), out({8, 2})),
                 {"low_contention_all_gather", "input", "[4, 3]", "[4, 2]", "output", "[8, 2]"});
  expect_refused(gather(f32({4, 2}), out({4, 2}), 1), {"input", "[4, 1]"});
  expect_refused(gather(f32({4, 2}), out({8, 2}), 2), {"gather_dim is 2", "0 to 1"});
  expect_refused(gather(f32({4, 2}), out({8, 2}), -1), {"gather_dim is -1", "0 to 1"});
  expect_refused(gather(memory.view({4, 2}, DType::kU32), out({8, 2})), {"u32", "f32", "equal types"});
  TensorView twice = out({8, 2});
  twice.strides[0] = 0;
  expect_refused(gather(f32({4, 2}), twice), {"output"});
  TensorView shifted = f32({8, 2});
  shifted.data = shifted.data_as<float>() + 2;
  expect_refused(gather(f32({4, 2}), shifted), {"output", "input"});
}

TEST(CollArguments, LowContentionGatherNeedsTheHandleOfItsInput) {
  struct Change {
    std::function<void(coll::LowContentionAllGatherArgs&, SymmRank&)> make;
    std::vector<std::string> pieces;
  };
  GuardedBytes memory(4096);
  const std::vector<Change> changes = {
      {[&](auto& args, SymmRank&) {
         args.input = memory.view({4, 2}, DType::kF32);
       },
       {"not symmetric"}},
      {[](auto& args, SymmRank&) { args.input.data = args.input.template data_as<std::byte>() - 4; },
       {"not symmetric", "32 bytes"}},
      {[](auto& args, SymmRank&) {
         args.input.strides = {1, 4};
       },
       {"contiguous", "handle"}},
  };
  for (const Change& change : changes) {
    expect_refused(
        [&](SymmRank& rank) {
          const Tensor input = rank.empty({4, 2});
          const Tensor output = rank.empty({8, 2});
          coll::LowContentionAllGatherArgs args{
              .input = input.view(), .output = output.view(), .input_handle = rank.meet(input)};
          change.make(args, rank);
          return coll::low_contention_all_gather(args, rank.group, *rank.stream);
        },
        change.pieces);
  }
}

TEST(CollArguments, LowContentionScatterNamesWhatDoesNotFit) {
  GuardedBytes memory(4096);
  GuardedBytes result(4096);
  const auto f32 = [&](const Dims& sizes) { return memory.view(sizes, DType::kF32); };
  const auto out = [&](const Dims& sizes) { return result.view(sizes, DType::kF32); };
  const auto scatter = [](const TensorView& input, const TensorView& output, int dim = 0,
                          ReduceOp op = ReduceOp::kSum) {
    return [=](SymmRank& rank) {
      return coll::low_contention_reduce_scatter(
          {.input = input, .output = output, .op = op, .scatter_dim = dim}, rank.group, *rank.stream);
    };
  };
  expect_refused(scatter(f32({8, 2}), out({3, 2})),
                 {"low_contention_reduce_scatter", "output", "[3, 2]", "[4, 2]"});
  expect_refused(scatter(f32({8, 2}), out({8, 2}), 1), {"output", "[8, 1]"});
  expect_refused(scatter(f32({8, 2}), out({4, 2}), 2), {"scatter_dim is 2"});
  expect_refused(scatter(memory.view({8, 2}, DType::kI32), result.view({4, 2}, DType::kI32)), {"i32"});
  expect_refused(scatter(f32({8, 2}), out({4, 2}), 0, static_cast<ReduceOp>(7)), {"op", "7"});
  TensorView shifted = f32({4, 2});
  shifted.data = shifted.data_as<float>() + 2;
  expect_refused(scatter(f32({8, 2}), shifted), {"output", "input"});
}

TEST(CollArguments, ProgressNamesWhatDoesNotFit) {
  struct Change {
    std::function<void(coll::AllGatherWithProgressArgs&, SymmRank&)> make;
    std::vector<std::string> pieces;
  };
  GuardedBytes memory(4096);
  const std::vector<Change> changes = {
      {[](auto& args, SymmRank&) { args.input_handle = nullptr; }, {"input_handle", "null"}},
      {[&](auto& args, SymmRank&) {
         args.input = memory.view({4, 2}, DType::kF32);
       },
       {"not symmetric"}},
      {[](auto& args, SymmRank&) { args.splits_per_rank = 3; }, {"splits_per_rank is 3", "8 elements"}},
      {[](auto& args, SymmRank&) { args.splits_per_rank = 0; }, {"splits_per_rank is 0"}},
      {[](auto& args, SymmRank&) { args.progress = args.progress.narrow(0, 0, 3); }, {"progress", "[4]"}},
      {[](auto& args, SymmRank&) { args.output = args.output.narrow(0, 0, 7); },
       {"output", "[7, 2]", "[8, 2]"}},
      {[](auto& args, SymmRank&) { args.input = args.input.movedim(0, 1); }, {"need"}},
  };
  for (const Change& change : changes) {
    expect_refused(
        [&](SymmRank& rank) {
          const Tensor input = rank.empty({4, 2});
          const auto handle = rank.meet(input);
          const Tensor output = rank.empty({8, 2});
          const Tensor progress = rank.empty({4}, DType::kU32);
          coll::AllGatherWithProgressArgs args{.output = output.view(),
                                               .input = input.view(),
                                               .progress = progress.view(),
                                               .splits_per_rank = 2,
                                               .input_handle = handle};
          change.make(args, rank);
          return coll::all_gather_with_progress(args, rank.group, *rank.stream);
        },
        change.pieces);
  }
}

TEST(CollArguments, ReduceStackNamesWhatDoesNotFit) {
  const auto device = open_device({}, Config{});
  ASSERT_TRUE(device);
  const auto stream = (*device)->create_stream().value();
  GuardedBytes memory(4096);
  const auto f32 = [&](const Dims& sizes) { return memory.view(sizes, DType::kF32); };
  const auto reduce = [&](const TensorView& stack, const TensorView& out) {
    return coll::reduce_stack({.stack = stack, .out = out, .op = ReduceOp::kSum, .bias = {}}, *stream);
  };
  expect_error(reduce(f32({2, 3}), f32({4})), ErrorCode::kInvalidArgument, "need [3]");
  expect_error(reduce(f32({0, 3}), f32({3})), ErrorCode::kInvalidArgument, "at least one layer");
  expect_error(reduce(f32({3, 2}).movedim(0, 1), f32({3})), ErrorCode::kInvalidArgument, "contiguous");
  expect_error(reduce(memory.view({2, 3}, DType::kF16), memory.view({3}, DType::kBF16)),
               ErrorCode::kInvalidArgument, "f16 and output bf16");
}

}  // namespace
}  // namespace tandem::testing
