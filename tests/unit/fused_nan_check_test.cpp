#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <tandem/tandem.hpp>
#include <vector>

#include "base/format.hpp"
#include "support/planted_nan.hpp"
#include "support/symm_rank.hpp"

// Checks for NaN in the inputs of fused ops: each input of each op by each algorithm, recorded calls, and the
// switch of a group.

namespace tandem::testing {
namespace {

constexpr std::int64_t kRows = 96;
constexpr std::int64_t kK = 96;
constexpr std::int64_t kN = 64;

/// Memory of the device, all ones or all NaN.
class Operand {
 public:
  Operand(const SymmRank& rank, const Dims& sizes, DType dtype)
      : tensor_(rank.device->allocate_tensor(sizes, dtype).value()), device_(*rank.device) {
    clean();
  }
  void clean() { fill({}); }
  /// NaN at `indices`, and nowhere else.
  void fill(const std::vector<std::int64_t>& indices) {
    Elements elements(tensor_.dtype(), tensor_.view().numel());
    for (std::int64_t i = 0; i < tensor_.view().numel(); ++i) elements.set(i, one());
    for (const std::int64_t idx : indices) elements.set(idx, nan_bits(tensor_.dtype())[1]);
    EXPECT_TRUE(device_.copy_from_host(elements.data(), tensor_.view()));
  }
  [[nodiscard]] const TensorView& view() const { return tensor_.view(); }

 private:
  [[nodiscard]] std::uint64_t one() const {
    switch (tensor_.dtype()) {
      case DType::kF32:
        return 0x3f80'0000U;
      case DType::kBF16:
        return 0x3f80U;
      default:
        return 0x38U;  // f8e4m3
    }
  }
  Tensor tensor_;
  Device& device_;
};

struct Operands {
  explicit Operands(SymmRank& rank)
      : shard(rank, {kRows / rank.size(), kK}, DType::kBF16),
        a(rank, {kRows, kK}, DType::kBF16),
        b(rank, {kK, kN}, DType::kBF16),
        bias(rank, {kN}, DType::kBF16),
        f8_shard(rank, {kRows / rank.size(), kK}, DType::kF8E4M3),
        f8_a(rank, {kRows, kK}, DType::kF8E4M3),
        f8_b(rank, {kK, kN}, DType::kF8E4M3),
        shard_scale(rank, {kRows / rank.size(), 1}, DType::kF32),
        a_scale(rank, {kRows, 1}, DType::kF32),
        b_scale(rank, {1, kN}, DType::kF32),
        result_scale(rank, {1}, DType::kF32),
        beside(rank, {kRows / rank.size(), 8}, DType::kBF16),
        whole(rank, {kRows, kN}, DType::kBF16),
        part(rank, {kRows / rank.size(), kN}, DType::kBF16),
        all_beside(rank, {kRows, 8}, DType::kBF16) {
    for (Operand* const result : {&whole, &part, &all_beside}) result->fill({0, 1, 2});  // NaN there passes
  }
  Operand shard, a, b, bias, f8_shard, f8_a, f8_b, shard_scale, a_scale, b_scale, result_scale, beside;
  Operand whole, part, all_beside;
};

using Enqueue =
    std::function<Result<OpReport>(Operands& t, Algorithm algorithm, Group& group, Stream& stream)>;

struct Input {
  std::string name;
  Operand Operands::*operand;
  bool is_before = true;  ///< every rank hears of it in this call
};

struct Op {
  std::string name;
  Enqueue enqueue;
  std::vector<Input> inputs;
};

Result<OpReport> gather(Operands& t, Algorithm algorithm, Group& group, Stream& stream) {
  return fused_all_gather_matmul({.a = t.shard.view(),
                                  .b = t.b.view(),
                                  .gather_size = kRows,
                                  .out = t.whole.view(),
                                  .bias = t.bias.view(),
                                  .algorithm = algorithm},
                                 group, stream);
}

Result<OpReport> scaled_gather(Operands& t, Algorithm algorithm, Group& group, Stream& stream) {
  return fused_all_gather_scaled_matmul({.a = t.f8_shard.view(),
                                         .b = t.f8_b.view(),
                                         .a_scale = t.shard_scale.view(),
                                         .scale_mode = ScaleMode::kRowwiseSharded,
                                         .b_scale = t.b_scale.view(),
                                         .gather_size = kRows,
                                         .out = t.whole.view(),
                                         .bias = t.bias.view(),
                                         .result_scale = t.result_scale.view(),
                                         .also_gather = t.beside.view(),
                                         .also_gathered = t.all_beside.view(),
                                         .algorithm = algorithm},
                                        group, stream);
}

Result<OpReport> scatter(Operands& t, Algorithm algorithm, Group& group, Stream& stream) {
  return fused_matmul_reduce_scatter(
      {.a = t.a.view(), .b = t.b.view(), .out = t.part.view(), .bias = t.bias.view(), .algorithm = algorithm},
      group, stream);
}

Result<OpReport> all_reduce(Operands& t, Algorithm algorithm, Group& group, Stream& stream) {
  return fused_matmul_all_reduce({.a = t.a.view(),
                                  .b = t.b.view(),
                                  .out = t.whole.view(),
                                  .bias = t.bias.view(),
                                  .algorithm = algorithm},
                                 group, stream);
}

Result<OpReport> scaled_scatter(Operands& t, Algorithm algorithm, Group& group, Stream& stream) {
  return fused_scaled_matmul_reduce_scatter({.a = t.f8_a.view(),
                                             .b = t.f8_b.view(),
                                             .a_scale = t.a_scale.view(),
                                             .b_scale = t.b_scale.view(),
                                             .bias = t.bias.view(),
                                             .result_scale = t.result_scale.view(),
                                             .out = t.part.view(),
                                             .algorithm = algorithm},
                                            group, stream);
}

std::vector<Op> ops() {
  return {{"all_gather_matmul",
           gather,
           {{"a", &Operands::shard}, {"b0", &Operands::b, false}, {"bias0", &Operands::bias, false}}},
          {"all_gather_scaled_matmul",
           scaled_gather,
           {{"a", &Operands::f8_shard},
            {"a_scale", &Operands::shard_scale},
            {"also_gather0", &Operands::beside},
            {"b0", &Operands::f8_b, false},
            {"bias0", &Operands::bias, false},
            {"b_scale0", &Operands::b_scale, false},
            {"result_scale0", &Operands::result_scale, false}}},
          {"matmul_reduce_scatter",
           scatter,
           {{"a0", &Operands::a}, {"b0", &Operands::b}, {"bias", &Operands::bias, false}}},
          {"matmul_all_reduce",
           all_reduce,
           {{"a0", &Operands::a}, {"b0", &Operands::b}, {"bias", &Operands::bias, false}}},
          {"scaled_matmul_reduce_scatter",
           scaled_scatter,
           {{"a0", &Operands::f8_a},
            {"b0", &Operands::f8_b},
            {"a_scale0", &Operands::a_scale},
            {"b_scale0", &Operands::b_scale},
            {"bias0", &Operands::bias},
            {"result_scale0", &Operands::result_scale}}}};
}

class FusedNanCheck : public ::testing::TestWithParam<RankCase> {
 protected:
  void run(const SymmProgram& program, const Config& config = {}) {
    expect_ok(run_symm_ranks(GetParam(), config, program));
  }
};
INSTANTIATE_TEST_SUITE_P(World, FusedNanCheck, ::testing::ValuesIn(rank_cases({2, 3})), case_name);

std::unique_ptr<Group> subgroup(SymmRank& rank, const std::string& name) {
  std::vector<int> ranks;
  for (int r = 0; r < rank.size(); ++r) ranks.push_back(r);
  auto group = rank.group.subgroup(ranks, name).value();
  group->set_nan_check(true);
  return group;
}

std::string index_in_words(const TensorView& view, std::int64_t idx) {
  return view.dim() == 1 ? fmt::format("[{}]", idx)
                         : fmt::format("[{}, {}]", idx / view.size(1), idx % view.size(1));
}

/// One op by one algorithm with NaN in one input of rank 1.
void expect_found(SymmRank& rank, Operands& t, const Op& op, const Input& input, Algorithm algorithm) {
  const std::string what =
      fmt::format("{} {} {}, rank {}", op.name, to_string(algorithm), input.name, rank.rank());
  const auto group = subgroup(rank, what.substr(0, what.find(',')));
  const TensorView& view = (t.*input.operand).view();
  const std::int64_t first = view.numel() / 2;
  const bool is_one = view.numel() == 1;
  if (rank.rank() == 1)
    (t.*input.operand).fill(is_one ? std::vector{first} : std::vector{first, view.numel() - 1});
  const auto report = op.enqueue(t, algorithm, *group, *rank.stream);
  Result<void> done;
  if (report) {
    EXPECT_TRUE(report->checks_nan) << what;
    EXPECT_NE(program_text(*report).find(fmt::format("check {} for NaN", input.name)), std::string::npos)
        << what;
    done = rank.finish();
  } else {
    done = tl::unexpected(report.error());
  }
  // Every rank has synchronized once: from here on all know.
  EXPECT_TRUE(rank.group.all_gather({}, "looked")) << what;
  const auto status = group->status();
  ASSERT_FALSE(status) << what;
  EXPECT_EQ(status.error().code(), ErrorCode::kNumeric) << what << ": " << status.error().text();
  const std::string found = is_one ? fmt::format("{} has 1 NaN, at element 0 ([0])", input.name)
                                   : fmt::format("{} has 2 NaNs, the first at element {} ({})", input.name,
                                                 first, index_in_words(view, first));
  EXPECT_TRUE(status.error().text().starts_with(fmt::format("rank 1: {} [", op.name)))
      << status.error().text();
  EXPECT_TRUE(status.error().text().ends_with(found)) << what << ": " << status.error().text();
  if (rank.rank() == 1 || input.is_before) {
    EXPECT_FALSE(done) << what;
    if (!done) {
      EXPECT_EQ(done.error().text(), status.error().text()) << what;
    }
  }
  static_cast<void>(rank.finish());
  (t.*input.operand).clean();
  EXPECT_TRUE(rank.group.all_gather({}, "cleaned")) << what;
}

/// Whether the op runs by it here, with clean inputs.
bool runs(SymmRank& rank, Operands& t, const Op& op, Algorithm algorithm) {
  const auto group = subgroup(rank, fmt::format("{} {} clean", op.name, to_string(algorithm)));
  const auto report = op.enqueue(t, algorithm, *group, *rank.stream);
  if (!report) {
    EXPECT_EQ(report.error().code(), ErrorCode::kUnsupported) << op.name << ": " << report.error().text();
    return false;
  }
  const auto done = rank.finish();
  EXPECT_TRUE(done) << op.name << " " << to_string(algorithm) << ": " << done.error().text();
  return true;
}

TEST_P(FusedNanCheck, finds_nan_in_each_input_of_each_op_by_each_algorithm) {
  run([](SymmRank& rank) -> Result<void> {
    Operands t(rank);
    int num_run = 0;
    for (const Op& op : ops()) {
      for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined, Algorithm::kNative}) {
        if (!runs(rank, t, op, algorithm)) continue;
        ++num_run;
        for (const Input& input : op.inputs) expect_found(rank, t, op, input, algorithm);
      }
    }
    EXPECT_GE(num_run, 10);
    return {};
  });
}

TEST_P(FusedNanCheck, the_switch_holds_for_the_calls_behind_it) {
  run([](SymmRank& rank) -> Result<void> {
    Operands t(rank);
    t.shard.fill({5});
    for (const bool is_on : {false, true, false}) {
      // Only a rank without NaN looks.
      if (rank.rank() == 0) t.shard.clean();
      if (rank.rank() == 0) rank.group.set_nan_check(is_on);
      for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined}) {
        const auto report = gather(t, algorithm, rank.group, *rank.stream);
        if (!report) return tl::unexpected(report.error());
        EXPECT_EQ(report->checks_nan, is_on && rank.rank() == 0);
        EXPECT_EQ(program_text(*report).find("for NaN") != std::string::npos, report->checks_nan);
        if (auto done = rank.finish(); !done) return done;
      }
    }
    return {};
  });
}

TEST_P(FusedNanCheck, indices_are_those_of_the_callers_dims) {
  run([](SymmRank& rank) -> Result<void> {
    const auto group = subgroup(rank, "dims");
    const std::int64_t shard = 8;
    Operand a(rank, {3, shard, kK}, DType::kBF16);
    Operand b(rank, {kK, kN}, DType::kBF16);
    Operand out(rank, {3, shard * rank.size(), kN}, DType::kBF16);
    AllGatherMatmulArgs args{
        .a = a.view(), .b = b.view(), .gather_dim = 1, .gather_size = shard * rank.size()};
    const auto layout = output_layout(args, 0);
    if (!layout) return tl::unexpected(layout.error());
    TensorView arranged = out.view();
    arranged.sizes = layout->sizes;
    arranged.strides = layout->strides;
    args.out = arranged;
    const std::int64_t idx = (2 * shard + 5) * kK + 7;
    if (rank.rank() == 1) a.fill({idx});
    const auto report = fused_all_gather_matmul(args, *group, *rank.stream);
    const auto done = report ? rank.finish() : Result<void>(tl::unexpected(report.error()));
    EXPECT_FALSE(done);
    if (!done) {
      EXPECT_TRUE(done.error().text().ends_with(fmt::format("a has 1 NaN, at element {} ([2, 5, 7])", idx)))
          << done.error().text();
    }
    return {};
  });
}

// The library's own recording of a call that comes again has the check too.
TEST_P(FusedNanCheck, calls_that_come_again_are_checked) {
  run([](SymmRank& rank) -> Result<void> {
    Operands t(rank);
    for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined}) {
      const auto group = subgroup(rank, fmt::format("again {}", to_string(algorithm)));
      for (int call = 0; call < 6; ++call) {
        const auto report = gather(t, algorithm, *group, *rank.stream);
        if (!report) return tl::unexpected(report.error());
        if (auto done = rank.finish(); !done) return done;
      }
      // A rank that still waited for the clean calls would hear of the NaN there.
      EXPECT_TRUE(rank.group.all_gather({}, "clean calls are over"));
      if (rank.rank() == 1) t.shard.fill({3});
      const auto report = gather(t, algorithm, *group, *rank.stream);
      const auto done = report ? rank.finish() : Result<void>(tl::unexpected(report.error()));
      EXPECT_FALSE(done);
      if (!done) {
        EXPECT_EQ(done.error().code(), ErrorCode::kNumeric);
      }
      static_cast<void>(rank.finish());
      EXPECT_TRUE(rank.group.all_gather({}, "again"));
      t.shard.clean();
    }
    return {};
  });
}

TEST_P(FusedNanCheck, a_callers_graph_keeps_the_check_it_was_recorded_with) {
  if (GetParam().placement.kind == DeviceKind::kCpu) GTEST_SKIP() << "CPUs record no graphs";
  run([](SymmRank& rank) -> Result<void> {
    Operands t(rank);
    for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined}) {
      const auto group = subgroup(rank, fmt::format("graph {}", to_string(algorithm)));
      if (auto report = gather(t, algorithm, *group, *rank.stream); !report)
        return tl::unexpected(report.error());
      if (auto done = rank.finish(); !done) return done;
      if (auto begun = rank.stream->begin_capture(); !begun) return begun;
      const auto report = gather(t, algorithm, *group, *rank.stream);
      auto graph = rank.stream->end_capture();
      if (!report) return tl::unexpected(report.error());
      if (!graph) return tl::unexpected(graph.error());
      group->set_nan_check(false);  // too late for the graph
      if (auto launched = (*graph)->launch(*rank.stream); !launched) return launched;
      if (auto done = rank.finish(); !done) return done;
      if (rank.rank() == 1) t.shard.fill({3});
      EXPECT_TRUE(rank.group.all_gather({}, "planted"));
      if (auto launched = (*graph)->launch(*rank.stream); !launched) return launched;
      const auto done = rank.finish();
      EXPECT_FALSE(done);
      if (!done) {
        EXPECT_EQ(done.error().code(), ErrorCode::kNumeric) << done.error().text();
      }
      static_cast<void>(rank.finish());
      EXPECT_TRUE(rank.group.all_gather({}, "launched"));
      t.shard.clean();
    }
    return {};
  });
}

}  // namespace
}  // namespace tandem::testing
