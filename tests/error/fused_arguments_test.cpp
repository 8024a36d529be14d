#include <gtest/gtest.h>

#include <vector>

#include "error/fused_refusals.hpp"

// Every argument that a fused op refuses, with the code and what the text has to name; on every backend. One
// rank: nothing is enqueued, so nobody waits.

namespace tandem {
namespace {

using test::Change;
using test::Complaints;
using test::expect_error;
using test::Guarded;
using test::JobCase;
using test::RankContextOfTest;

/// Right arguments of a gather, and everything that makes them wrong.
class GatherArguments {
 public:
  using Args = AllGatherMatmulArgs;
  explicit GatherArguments(Device& device) : device_(device) {}

  Args good() {
    bs_ = {b_.view()};
    outs_ = {out_.view()};
    return {.a = a_.view(), .b = bs_, .gather_dim = 0, .gather_size = 4, .out = outs_, .gathered = {}};
  }

  std::vector<Change<Args>> wrong_inputs() {
    return {
        {"need a matrix", [&](Args& args) { args.a = bias_.view(); }},
        {"gather_dim is 3, need 0 to 2", [](Args& args) { args.gather_dim = 3; }},
        {"gather_dim is -1", [](Args& args) { args.gather_dim = -1; }},
        {"need 5 at gather_dim 0", [](Args& args) { args.gather_size = 5; }},
        {"plan_n is -1, need 0 to", [](Args& args) { args.plan_n = -1; }},
        {"gather_size is that of gather_dim 0", [](Args& args) { args.gather_size = -4; }},
        {"at most 2^62 bytes", [](Args& args) { args.gather_size = INT64_MAX; }},
        {"need f32, bf16 or f16", [&](Args& args) { args.a = bytes_.view(); }},
        {"has no memory", [](Args& args) { args.a.data = nullptr; }},
        {"need none below 0", [](Args& args) { args.a.strides[0] = -1; }},
        {"0 b's", [](Args& args) { args.b = {}; }},
        {"0 out's", [](Args& args) { args.out = {}; }},
        {"b[0] has sizes [9, 5], need [8, n]", [&](Args& args) { set_b(args, wide_.view()); }},
        {"b[0] is bf16, need f32", [&](Args& args) { set_b(args, half_.view()); }},
        {"b[0] has sizes [5]", [&](Args& args) { set_b(args, bias_.view()); }},
    };
  }

  std::vector<Change<Args>> wrong_outputs() {
    return {
        {"out[0] has sizes", [&](Args& args) { set_out(args, gathered_.view()); }},
        {"has strides [30, 1, 6], need [30, 5, 1]",
         [&](Args& args) {
           TensorView view = out_.view();
           view.strides = {30, 1, 6};
           set_out(args, view);
         }},
        {"strides [30, 5, 1], need [5, 20, 1]",
         [&](Args& args) {
           args.gather_dim = 1;
           args.gather_size = 6;
         }},
        {"bias[0] has sizes [4], need [5]",
         [&](Args& args) { set_bias(args, bias_.view().narrow(0, 0, 4)); }},
        {"gathered has sizes", [&](Args& args) { args.gathered = out_.view(); }},
        {"out[0] (480 bytes",
         [&](Args& args) {
           TensorView view = out_.view();
           view.data = args.a.data;
           set_out(args, view);
         }},
        {"gathered (768 bytes", [&](Args& args) { args.gathered = args.a; }},
        {"native cannot run on " + to_string(device_.id()) +
             ": it gathers rows, and here columns are gathered",
         [](Args& args) {
           args.gather_dim = 2;
           args.gather_size = 8;
           args.algorithm = Algorithm::kNative;
         },
         ErrorCode::kUnsupported},
    };
  }

 private:
  void set_b(Args& args, const TensorView& view) {
    bs_ = {view};
    args.b = bs_;
  }
  void set_out(Args& args, const TensorView& view) {
    outs_ = {view};
    args.out = outs_;
  }
  void set_bias(Args& args, const TensorView& view) {
    biases_ = {view};
    args.bias = biases_;
  }

  Device& device_;
  Guarded a_{device_, Dims{4, 6, 8}, DType::kF32};
  Guarded wide_{device_, Dims{9, 5}, DType::kF32};
  Guarded b_{device_, Dims{8, 5}, DType::kF32};
  Guarded half_{device_, Dims{8, 5}, DType::kBF16};
  Guarded bytes_{device_, Dims{4, 6, 8}, DType::kU8};
  Guarded bias_{device_, Dims{5}, DType::kF32};
  Guarded out_{device_, Dims{4, 6, 5}, DType::kF32};
  Guarded gathered_{device_, Dims{4, 6, 8}, DType::kF32};
  std::vector<TensorView> bs_, outs_, biases_;
};

class FusedArguments : public ::testing::TestWithParam<JobCase> {};
INSTANTIATE_TEST_SUITE_P(Ranks, FusedArguments, ::testing::ValuesIn(test::exact_cases({1})), test::job_name);

TEST_P(FusedArguments, all_gather_matmul_refuses) {
  test::expect_refusals<GatherArguments>(GetParam(), fused_all_gather_matmul);
}

TEST_P(FusedArguments, a_handle_has_to_cover_a) {
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    auto block = symm::empty({4, 8}, DType::kF32, rank.device);
    if (!block) return tl::unexpected(block.error());
    auto handle = symm::rendezvous(*block, rank.group);
    if (!handle) return tl::unexpected(handle.error());
    Guarded elsewhere(rank.device, Dims{4, 8}, DType::kF32);
    Guarded b(rank.device, Dims{8, 5}, DType::kF32);
    Guarded out(rank.device, Dims{4, 5}, DType::kF32);
    const std::vector<TensorView> bs = {b.view()};
    const std::vector<TensorView> outs = {out.view()};
    AllGatherMatmulArgs args{
        .a = elsewhere.view(), .b = bs, .gather_dim = 0, .gather_size = 4, .out = outs, .gathered = {}};
    args.a_handle = *handle;
    expect_error(fused_all_gather_matmul(args, rank.group, rank.stream), ErrorCode::kInvalidArgument,
                 "need all of it inside", complaints);
    args.a = block->view();
    args.a.strides = {1, 4};
    expect_error(fused_all_gather_matmul(args, rank.group, rank.stream), ErrorCode::kInvalidArgument,
                 "need [8, 1] to be read in place", complaints);
    return {};
  });
  EXPECT_EQ(complaints.text(), "");
}

// The same rank of as many, on the same device: only who its peers are is different.
TEST_P(FusedArguments, a_handle_has_to_be_of_the_group) {
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    auto block = symm::empty({4, 8}, DType::kF32, rank.device);
    if (!block) return tl::unexpected(block.error());
    Guarded b(rank.device, Dims{8, 5}, DType::kF32);
    Guarded out(rank.device, Dims{4, 5}, DType::kF32);
    const std::vector<TensorView> bs = {b.view()};
    const std::vector<TensorView> outs = {out.view()};
    AllGatherMatmulArgs args{
        .a = block->view(), .b = bs, .gather_dim = 0, .gather_size = 4, .out = outs, .gathered = {}};
    const auto expect_refusal = [&] {
      expect_error(fused_all_gather_matmul(args, rank.group, rank.stream), ErrorCode::kInvalidArgument,
                   "in another group", complaints);
    };
    const auto in_another = [&](Group& other) -> Result<void> {
      auto handle = symm::rendezvous(*block, other);
      if (!handle) return tl::unexpected(handle.error());
      args.a_handle = *std::move(handle);
      expect_refusal();
      return {};
    };
    if (auto ran = run_thread_ranks(1, test::quick_config(), in_another); !ran) return ran;
    expect_refusal();  // the other group is gone
    return {};
  });
  EXPECT_EQ(complaints.text(), "");
}

/// Right arguments of a scatter or an all-reduce, and everything that makes them wrong.
template <class ArgsOfOp>
class SumArguments {
 public:
  using Args = ArgsOfOp;
  explicit SumArguments(Device& device) : device_(device) {}

  Args good() {
    as_ = {a_.view()};
    bs_ = {b_.view()};
    return {.a = as_, .b = bs_, .out = out_.view(), .bias = {}, .product = product_.view(), .partials = {}};
  }

  std::vector<Change<Args>> wrong_inputs() {
    std::vector<Change<Args>> changes = {
        {"0 a's", [](Args& args) { args.a = {}; }},
        {"1 a's and 0 b's", [](Args& args) { args.b = {}; }},
        {"plan_k is -7, need 0 to", [](Args& args) { args.plan_k = -7; }},
        {"need a matrix",
         [&](Args& args) {
           as_ = {bias_.view()};
           args.a = as_;
         }},
        {"b[0] has sizes [9, 5], need [8, 5]", [&](Args& args) { set_b(args, wide_.view()); }},
        {"b[0] is bf16, need f32", [&](Args& args) { set_b(args, half_.view()); }},
        {"a[1] has sizes [4, 7, 8], need those of a[0]",
         [&](Args& args) {
           as_ = {a_.view(), other_.view()};
           bs_ = {b_.view(), b_.view()};
           args.a = as_;
           args.b = bs_;
         }},
        {"reduce_op must be sum or avg", [](Args& args) { args.reduce_op = static_cast<coll::ReduceOp>(7); }},
        {"partials is bf16, need f32", [](Args& args) { args.partials = DType::kBF16; }},
    };
    if constexpr (requires(Args args) { args.scatter_dim; }) {
      changes.push_back({"scatter_dim is 3, need 0 to 2", [](Args& args) { args.scatter_dim = 3; }});
      changes.push_back({"scatter_dim is -1", [](Args& args) { args.scatter_dim = -1; }});
    }
    return changes;
  }

  std::vector<Change<Args>> wrong_outputs() {
    return {
        {"out has sizes", [&](Args& args) { args.out = a_.view(); }},
        {"out of sizes [4, 6, 5] has strides [1, 4, 24]",
         [](Args& args) {
           args.out.strides = {1, 4, 24};
         }},
        {"bias has sizes [3], need [5]", [&](Args& args) { args.bias = bias_.view().narrow(0, 0, 3); }},
        {"product has sizes", [&](Args& args) { args.product = a_.view(); }},
        {"product (480 bytes", [&](Args& args) { args.product = args.out; }},
        {"out (480 bytes",
         [](Args& args) { args.out.data = static_cast<std::byte*>(args.a.front().data) + 4; }},
        {"cannot run on " + to_string(device_.id()), [](Args& args) { args.algorithm = Algorithm::kNative; },
         ErrorCode::kUnsupported},
    };
  }

 private:
  void set_b(Args& args, const TensorView& view) {
    bs_ = {view};
    args.b = bs_;
  }

  Device& device_;
  Guarded a_{device_, Dims{4, 6, 8}, DType::kF32};
  Guarded other_{device_, Dims{4, 7, 8}, DType::kF32};
  Guarded b_{device_, Dims{8, 5}, DType::kF32};
  Guarded wide_{device_, Dims{9, 5}, DType::kF32};
  Guarded half_{device_, Dims{8, 5}, DType::kBF16};
  Guarded bias_{device_, Dims{5}, DType::kF32};
  Guarded out_{device_, Dims{4, 6, 5}, DType::kF32};
  Guarded product_{device_, Dims{4, 6, 5}, DType::kF32};
  std::vector<TensorView> as_, bs_;
};

TEST_P(FusedArguments, matmul_reduce_scatter_refuses) {
  test::expect_refusals<SumArguments<MatmulReduceScatterArgs>>(GetParam(), fused_matmul_reduce_scatter);
}

TEST_P(FusedArguments, matmul_all_reduce_refuses) {
  test::expect_refusals<SumArguments<MatmulAllReduceArgs>>(GetParam(), fused_matmul_all_reduce);
}

}  // namespace
}  // namespace tandem
