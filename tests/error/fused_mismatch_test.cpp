#include <gtest/gtest.h>

#include <fmt/format.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "conformance/fused_harness.hpp"

// One rank calls something else than the others: kMismatch on every rank, on every backend; on CPUs no byte
// of any output changes (GPUs skip nothing behind a fault). Each mutation is tried as the first call of the
// group and after three good ones, when the host does not wait for agreement any more.

namespace tandem {
namespace {

using test::Complaints;
using test::Guarded;
using test::JobCase;
using test::RankContextOfTest;

enum class Op : std::uint8_t { kGather, kScatter, kAllReduce };
constexpr std::array<std::string_view, 3> kNames = {"gather", "scatter", "all_reduce"};

/// What one rank calls.
struct Call {
  Op kind = Op::kGather;
  DType dtype = DType::kF32;
  Dims sizes = {6, 4, 8};  ///< of all of a; of the product for a scatter
  int dim = 0;
  std::int64_t n = 5;  ///< columns of b for a gather, k for a scatter
  coll::ReduceOp op = coll::ReduceOp::kSum;
  std::optional<DType> partials = {};
  Algorithm algorithm = Algorithm::kPipelined;
  std::int64_t plan = 0;  ///< plan_n, plan_k
  bool bad_arguments = false;
};

/// Returned when a call was not enqueued, or not to its end: what was enqueued uses the call's tensors.
tl::unexpected<Error> broken_off(const Error& error, Stream& stream) {
  static_cast<void>(stream.synchronize());
  return tl::unexpected(error);
}

/// A call's tensors; alive until the stream is done.
struct Made {
  std::optional<Guarded> a, b, out;
  std::vector<TensorView> as, bs, outs;
  std::vector<std::byte> before;
};

Result<Layout> layout_of(const MatmulReduceScatterArgs& args, const Group& group) {
  return output_layout(args, group.size(), group.rank());
}
Result<Layout> layout_of(const MatmulAllReduceArgs& args, const Group&) {
  return output_layout(args);
}

/// A sum over ranks. `op` takes such args.
template <class Args, class Op>
Result<void> issue_sum(RankContextOfTest& rank, const Call& call, Made& made, Args args, Op op) {
  args.a = made.as;
  args.b = made.bs;
  args.reduce_op = call.op;
  args.partials = call.partials;
  args.algorithm = call.algorithm;
  args.plan_k = call.plan;
  if (!made.bs.empty()) {
    const auto layout = layout_of(args, rank.group);
    if (!layout) return tl::unexpected(layout.error());
    made.out.emplace(rank.device, *layout, call.dtype);
    args.out = made.out->view();
    made.before = made.out->bytes();
  }
  if (const auto report = op(args, rank.group, rank.stream); !report)
    return broken_off(report.error(), rank.stream);
  return rank.stream.synchronize();
}

Result<void> issue(RankContextOfTest& rank, const Call& call, Made& made) {
  const int world = rank.group.size();
  const int me = rank.group.rank();
  const bool gathers = call.kind == Op::kGather;
  Dims mine = gathers ? call.sizes : test::with_last(call.sizes, call.n);
  if (gathers) mine[call.dim] = shard_of(call.sizes[call.dim], world, me).size;
  made.a.emplace(rank.device, mine, call.dtype);
  made.b.emplace(rank.device, gathers ? Dims{call.sizes.back(), call.n} : Dims{call.n, call.sizes.back()},
                 call.dtype);
  made.as = {made.a->view()};
  made.bs = {made.b->view()};
  if (call.bad_arguments) made.bs.clear();
  if (gathers) {
    AllGatherMatmulArgs args{.a = made.as[0],
                             .b = made.bs,
                             .gather_dim = call.dim,
                             .gather_size = call.sizes[call.dim],
                             .out = {},
                             .gathered = {}};
    args.algorithm = call.algorithm;
    args.plan_n = call.plan;
    if (!made.bs.empty()) {
      const auto layout = output_layout(args, 0);
      if (!layout) return tl::unexpected(layout.error());
      made.out.emplace(rank.device, *layout, call.dtype);
      made.outs = {made.out->view()};
      args.out = made.outs;
      made.before = made.out->bytes();
    }
    if (const auto report = fused_all_gather_matmul(args, rank.group, rank.stream); !report) {
      return broken_off(report.error(), rank.stream);
    }
    return rank.stream.synchronize();
  }
  if (call.kind == Op::kAllReduce)
    return issue_sum(rank, call, made, MatmulAllReduceArgs(), fused_matmul_all_reduce);
  return issue_sum(rank, call, made, MatmulReduceScatterArgs{.scatter_dim = call.dim},
                   fused_matmul_reduce_scatter);
}

struct Mutation {
  std::string name;
  std::function<void(Call&)> change;
  bool agrees = false;  ///< what ranks may differ in
};

std::vector<Mutation> common_mutations() {
  return {
      {"bf16", [](Call& c) { c.dtype = DType::kBF16; }},
      {"f16", [](Call& c) { c.dtype = DType::kF16; }},
      {"last size 9", [](Call& c) { c.sizes[2] = 9; }},
      {"last size 7", [](Call& c) { c.sizes[2] = 7; }},
      {"last size 0", [](Call& c) { c.sizes[2] = 0; }},
      {"first size 7", [](Call& c) { c.sizes[0] = 7; }},
      {"first size 12", [](Call& c) { c.sizes[0] = 12; }},
      {"first size 0", [](Call& c) { c.sizes[0] = 0; }},
      {"second size 5", [](Call& c) { c.sizes[1] = 5; }},
      {"serial", [](Call& c) { c.algorithm = Algorithm::kSerial; }},
      {"auto", [](Call& c) { c.algorithm = Algorithm::kAuto; }},
      {"native", [](Call& c) { c.algorithm = Algorithm::kNative; }},
      {"another planned size", [](Call& c) { c.plan = 5; }},
      {"another op", [](Call& c) { c.kind = static_cast<Op>((static_cast<int>(c.kind) + 1) % 3); }},
      {"bad arguments", [](Call& c) { c.bad_arguments = true; }},
      {"b of other size", [](Call& c) { c.n = 6; }, true},
      {"b of no columns or rows", [](Call& c) { c.n = 0; }, true},
  };
}

/// Ranks share the rows of all dims in an all-reduce.
void add_shapes(std::vector<Mutation>& all, bool agrees) {
  all.push_back({"2-D of as many elements", [](Call& c) { c.sizes = {24, 8}; }, agrees});
  all.push_back({"4-D of as many elements", [](Call& c) { c.sizes = {6, 2, 2, 8}; }, agrees});
}

void add_dims(std::vector<Mutation>& all) {
  all.push_back({"dim 1", [](Call& c) { c.dim = 1; }});
  all.push_back({"dim 2", [](Call& c) { c.dim = 2; }});
}

std::vector<Mutation> mutations_of(Op op) {
  std::vector<Mutation> all = common_mutations();
  add_shapes(all, op == Op::kAllReduce);
  if (op != Op::kAllReduce) add_dims(all);
  if (op == Op::kGather) return all;
  all.push_back({"avg", [](Call& c) { c.op = coll::ReduceOp::kAvg; }});
  all.push_back({"bf16 with f32 partials", [](Call& c) {
                   c.dtype = DType::kBF16;
                   c.partials = DType::kF32;
                 }});
  all.push_back({"f32 partials spelled out", [](Call& c) { c.partials = DType::kF32; }, true});
  return all;
}

void run_mutation(const JobCase& job, Op op, const Mutation& mutation, int odd_rank, int good_calls) {
  Complaints complaints;
  test::on_ranks(job, test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    const std::string who = mutation.name + " on rank " + std::to_string(odd_rank) + " after " +
                            std::to_string(good_calls) + " calls, rank " + std::to_string(rank.group.rank());
    Call call{.kind = op};
    for (int i = 0; i < good_calls; ++i) {
      Made made;
      if (auto ok = issue(rank, call, made); !ok) return ok;
    }
    // All ranks are through: a refusal ends every wait of the group, also one whose signal is on its way.
    if (auto met = rank.group.all_gather({}, "good calls are over"); !met) return tl::unexpected(met.error());
    if (rank.group.rank() == odd_rank) mutation.change(call);
    Made made;
    const auto result = issue(rank, call, made);
    if (mutation.agrees) {
      if (!result) complaints.add(who + ": " + result.error().to_string());
      return {};
    }
    // Native runs on CPUs: there it differs from what the others run.
    const bool lacks_native = call.algorithm == Algorithm::kNative && !job.is_on_cpu();
    const bool refused_here = rank.group.rank() == odd_rank && (call.bad_arguments || lacks_native);
    if (result) {
      complaints.add(who + ": no error");
    } else if (result.error().code() != ErrorCode::kMismatch && !refused_here) {
      complaints.add(who + ": " + result.error().to_string());
    }
    if (made.out && job.is_on_cpu()) {
      made.out->download();
      if (made.out->bytes() != made.before) complaints.add(who + ": an output byte changed");
    }
    return {};
  });
  EXPECT_EQ(complaints.text(), "");
}

class FusedMismatch : public ::testing::TestWithParam<std::tuple<Op, JobCase>> {};

TEST_P(FusedMismatch, is_an_error_on_every_rank_before_any_output_byte_changes) {
  const auto& [op, job] = GetParam();
  int turn = 0;
  for (const Mutation& mutation : mutations_of(op)) {
    for (const int good_calls : {0, 3}) run_mutation(job, op, mutation, turn++ % 3, good_calls);
  }
}

// Config::batch_invariant is a device's own, so every rank may have another one.
TEST_P(FusedMismatch, in_batch_invariance_is_an_error_on_every_rank) {
  const auto& [op, job] = GetParam();
  Complaints complaints;
  test::on_ranks(job, test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    Config config = test::with_own_products(test::quick_config());
    config.batch_invariant = rank.group.rank() == 1;
    const auto device = open_device(rank.device.id(), config);
    if (!device) return tl::unexpected(device.error());
    const auto stream = (*device)->create_stream();
    if (!stream) return tl::unexpected(stream.error());
    RankContextOfTest own{rank.group, **device, **stream};
    Made made;
    const auto result = issue(own, {.kind = op}, made);
    const std::string text = result ? "no error" : result.error().to_string();
    if (!text.starts_with("Mismatch") || text.find("batch invariant") == std::string::npos)
      complaints.add(fmt::format("rank {}: {}", rank.group.rank(), text));
    return {};
  });
  EXPECT_EQ(complaints.text(), "");
}

std::string case_name(const ::testing::TestParamInfo<FusedMismatch::ParamType>& instance) {
  const auto& [op, job] = instance.param;
  return std::string(kNames[static_cast<std::size_t>(op)]) + "_" + to_string(job);
}
INSTANTIATE_TEST_SUITE_P(Ops, FusedMismatch,
                         ::testing::Combine(::testing::Values(Op::kGather, Op::kScatter, Op::kAllReduce),
                                            ::testing::ValuesIn(test::exact_cases({3}))),
                         case_name);

}  // namespace
}  // namespace tandem
