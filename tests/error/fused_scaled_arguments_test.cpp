#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "error/fused_refusals.hpp"

// Every argument that a fused op of scaled products refuses, as fused_arguments_test.cpp; ranks that do not
// agree.

namespace tandem {
namespace {

using test::Change;
using test::Complaints;
using test::expect_error;
using test::Guarded;
using test::RankContextOfTest;

/// Right arguments of a gather, and everything that makes them wrong.
class GatherArguments {
 public:
  using Args = AllGatherScaledMatmulArgs;
  explicit GatherArguments(Device& device) : device_(device) {}

  Args good() {
    bs_ = {b_.view()};
    b_scales_ = {b_scale_.view()};
    outs_ = {out_.view()};
    also_gather_ = {beside_shard_.view()};
    beside_gathered_ = {beside_all_.view()};
    return {.a = a_.view(),
            .b = bs_,
            .a_scale = rows_.view(),
            .scale_mode = ScaleMode::kRowwiseSharded,
            .b_scale = b_scales_,
            .gather_dim = 1,
            .gather_size = 6,
            .out = outs_,
            .also_gather = also_gather_,
            .also_gathered = beside_gathered_};
  }

  std::vector<Change<Args>> wrong_inputs() {
    return {
        {"need a matrix", [&](Args& args) { args.a = b_scale_.view().select(0, 0); }},
        {"a is f32, need f8e4m3 or f8e5m2", [](Args& args) { args.a.dtype = DType::kF32; }},
        {"gather_dim is 3, need 0 to 2", [](Args& args) { args.gather_dim = 3; }},
        {"plan_n is -1, need 0 to", [](Args& args) { args.plan_n = -1; }},
        {"need 7 at gather_dim 1", [](Args& args) { args.gather_size = 7; }},
        {"a_scale has sizes [4, 5, 1] and scale_mode is rowwise_sharded; a has sizes [4, 6, 8], over all "
         "ranks "
         "[4, 6, 8]",
         [&](Args& args) { args.a_scale->sizes[1] = 5; }},
        {"a_scale has sizes [4, 6, 1] and scale_mode is tensorwise",
         [](Args& args) { args.scale_mode = ScaleMode::kTensorwise; }},
        {"scale_mode is none", [](Args& args) { args.scale_mode = ScaleMode::kNone; }},
        {"a_scale has sizes none and scale_mode is rowwise_sharded", [](Args& args) { args.a_scale = {}; }},
        {"a_scale has sizes [1, 5] and scale_mode is detect",
         [&](Args& args) {
           args.a_scale = b_scale_.view();
           args.scale_mode = ScaleMode::kDetect;
         }},
        {"a_scale has sizes [4, 6, 2] and scale_mode is blockwise_sharded; a has sizes [4, 6, 8]",
         [](Args& args) {
           args.scale_mode = ScaleMode::kBlockwiseSharded;
           args.a_scale->sizes[2] = 2;
         }},
        {"and where scale_mode says so [4, 6, 1] (blockwise_sharded) or [4, 6, 1] (blockwise_replicated)",
         [](Args& args) { args.a_scale->sizes[1] = 5; }},
        {"b_scale[0] is f32 [1, 4], need f32 [1, 5] or [1, 1] with scales by blocks",
         [&](Args& args) {
           args.scale_mode = ScaleMode::kBlockwiseReplicated;
           b_scales_[0].sizes[1] = 4;
         }},
        {"a_scale is bf16 [4, 6, 1], need f32", [](Args& args) { args.a_scale->dtype = DType::kBF16; }},
        {"0 b's, 1 out's", [](Args& args) { args.b = {}; }},
        {"got 0 b_scales for 1 b's, need 1 with scale_mode rowwise_sharded",
         [](Args& args) { args.b_scale = {}; }},
        {"need 0 with scale_mode none",
         [](Args& args) {
           args.a_scale = {};
           args.scale_mode = ScaleMode::kNone;
         }},
        {"2 bias'es", [&](Args& args) { set(args, 2, {}, {}); }},
        {"b[0] has sizes [1, 5], need [8, n]", [&](Args&) { bs_[0].sizes[0] = 1; }},
        {"b[0] is bf16, need f8e4m3", [&](Args&) { bs_[0].dtype = DType::kBF16; }},
        {"b_scale[0] is f32 [5, 1], need f32 of one element or [1, 5]",
         [&](Args&) {
           b_scales_[0].sizes = {5, 1};
         }},
    };
  }

  std::vector<Change<Args>> wrong_outputs() {
    return {
        {"out[0] is i32", [&](Args&) { outs_[0].dtype = DType::kI32; }},
        {"out[0] of sizes [4, 6, 5] has strides [30, 5, 1], need [5, 20, 1]",
         [&](Args&) {
           outs_[0].strides = {30, 5, 1};
         }},
        {"bias[0] has sizes [1, 5], need [5]", [&](Args& args) { set(args, 1, b_scale_.view(), {}); }},
        {"result_scale[0] is f32 [1, 5], need f32 of one element",
         [&](Args& args) { set(args, 1, {}, b_scale_.view()); }},
        {"gathered is f32, need f8e4m3 as its shard", [&](Args& args) { args.gathered = rows_.view(); }},
        {"gathered has sizes [4, 6, 1], need [4, 6, 8]",
         [&](Args& args) {
           args.gathered = rows_.view();
           args.gathered->dtype = DType::kF8E4M3;
         }},
        {"got 1 also_gather and 0 also_gathered, need as many, up to 6",
         [](Args& args) { args.also_gathered = {}; }},
        {"also_gather[0] has sizes [4, 5, 3], need those of a but the last: [4, 6, 8]",
         [&](Args&) { also_gather_[0].sizes[1] = 5; }},
        {"also_gathered[0] is f32, need bf16 as its shard",
         [&](Args&) { beside_gathered_[0].dtype = DType::kF32; }},
        {"out[0] (480 bytes", [&](Args& args) { outs_[0].data = args.a_scale->data; }},
        {"also_gathered[0] (144 bytes", [&](Args&) { beside_gathered_[0].data = also_gather_[0].data; }},
        {"cannot run on " + to_string(device_.id()), [](Args& args) { args.algorithm = Algorithm::kNative; },
         ErrorCode::kUnsupported},
    };
  }

 private:
  void set(Args& args, std::size_t count, std::optional<TensorView> bias,
           std::optional<TensorView> result_scale) {
    biases_.assign(count, bias);
    result_scales_.assign(count, result_scale);
    args.bias = biases_;
    args.result_scale = result_scales_;
  }
  static Layout front_major(std::int64_t last) { return {{4, 6, last}, {last, 4 * last, 1}}; }

  Device& device_;
  Guarded a_{device_, Dims{4, 6, 8}, DType::kF8E4M3};
  Guarded rows_{device_, Dims{4, 6, 1}, DType::kF32};
  Guarded b_{device_, Dims{8, 5}, DType::kF8E4M3};
  Guarded b_scale_{device_, Dims{1, 5}, DType::kF32};
  Guarded out_{device_, front_major(5), DType::kF32};
  Guarded beside_shard_{device_, Dims{4, 6, 3}, DType::kBF16};
  Guarded beside_all_{device_, front_major(3), DType::kBF16};
  std::vector<TensorView> bs_, b_scales_, outs_, also_gather_, beside_gathered_;
  std::vector<std::optional<TensorView>> biases_, result_scales_;
};

/// Right arguments of a gather whose a is quantised behind it.
class QuantizedGatherArguments {
 public:
  using Args = AllGatherScaledMatmulArgs;
  explicit QuantizedGatherArguments(Device& device) : device_(device) {}

  Args good() {
    bs_ = {b_.view()};
    b_scales_ = {b_scale_.view()};
    outs_ = {out_.view()};
    return {.a = a_.view(),
            .b = bs_,
            .quantize = DType::kF8E5M2,
            .b_scale = b_scales_,
            .gather_size = 6,
            .out = outs_};
  }

  std::vector<Change<Args>> wrong_inputs() {
    return {
        {"quantize is bf16, need f8e4m3 or f8e5m2", [](Args& args) { args.quantize = DType::kBF16; }},
        {"a is f8e4m3, need f32, bf16 or f16", [&](Args& args) { args.a = f8_.view(); }},
        {"quantize is f8e5m2, a_scale has sizes [1, 5] and scale_mode is detect: need no a_scale",
         [&](Args& args) { args.a_scale = b_scale_.view(); }},
        {"a_scale has sizes none and scale_mode is tensorwise: need no a_scale",
         [](Args& args) { args.scale_mode = ScaleMode::kTensorwise; }},
        {"scale_mode is none: need no a_scale", [](Args& args) { args.scale_mode = ScaleMode::kNone; }},
        {"gather_dim 1 is the last of a of sizes [6, 8]: a row's scale needs all of k",
         [](Args& args) {
           args.gather_dim = 1;
           args.gather_size = 8;
         }},
        {"got 0 b_scales for 1 b's, need 1 with scale_mode rowwise_sharded",
         [](Args& args) { args.b_scale = {}; }},
    };
  }

  std::vector<Change<Args>> wrong_outputs() {
    return {
        {"gathered is f8e4m3, need bf16 as its shard", [&](Args& args) { args.gathered = f8_.view(); }},
        {"it multiplies what peers send, and here a is quantised in between",
         [](Args& args) { args.algorithm = Algorithm::kNative; }, ErrorCode::kUnsupported},
    };
  }

 private:
  Device& device_;
  Guarded a_{device_, Dims{6, 8}, DType::kBF16};
  Guarded f8_{device_, Dims{6, 8}, DType::kF8E4M3};
  Guarded b_{device_, Dims{8, 5}, DType::kF8E4M3};
  Guarded b_scale_{device_, Dims{1, 5}, DType::kF32};
  Guarded out_{device_, Dims{6, 5}, DType::kF32};
  std::vector<TensorView> bs_, b_scales_, outs_;
};

/// Right arguments of a scatter or an all-reduce, and everything that makes them wrong.
template <class ArgsOfOp>
class SumArguments {
 public:
  using Args = ArgsOfOp;
  explicit SumArguments(Device& device) : device_(device) {}

  Args good() {
    as_ = {a_.view(), plain_.view()};
    bs_ = {b_.view(), plain_b_.view()};
    a_scales_ = {rows_.view(), std::nullopt};
    b_scales_ = {columns_.view(), std::nullopt};
    biases_ = {std::nullopt, bias_.view()};
    result_scales_ = {std::nullopt, std::nullopt};
    Args args = {.a = as_,
                 .b = bs_,
                 .a_scale = a_scales_,
                 .b_scale = b_scales_,
                 .bias = biases_,
                 .result_scale = result_scales_,
                 .out = out_.view(),
                 .product = product_.view()};
    if constexpr (requires { args.scatter_dim; }) args.scatter_dim = 1;
    return args;
  }

  std::vector<Change<Args>> wrong_inputs() {
    std::vector<Change<Args>> changes = {
        {"0 a's", [](Args& args) { args.a = {}; }},
        {"a[1] has sizes [4, 5, 8], need those of a[0] but the last: [4, 6, 8]",
         [&](Args&) { as_[1].sizes[1] = 5; }},
        {"b[1] has sizes [8, 4], need [8, 5]", [&](Args&) { bs_[1].sizes[1] = 4; }},
        {"plan_k is -7, need 0 to", [](Args& args) { args.plan_k = -7; }},
        {"got 2 a's, 1 a_scales", [&](Args& args) { args.a_scale = std::span(args.a_scale).first(1); }},
        {"1 result_scales", [&](Args& args) { args.result_scale = std::span(args.result_scale).first(1); }},
        {"product 0 has b_scale only", [&](Args&) { a_scales_[0].reset(); }},
        {"product 1 has a_scale only", [&](Args&) { a_scales_[1] = rows_.view(); }},
        {"a[0] is bf16, need f8e4m3 or f8e5m2", [&](Args&) { as_[0].dtype = DType::kBF16; }},
        {"b[1] is f16, need bf16 as a", [&](Args&) { bs_[1].dtype = DType::kF16; }},
        {"a[1] is i32, need f32, bf16 or f16", [&](Args&) { as_[1].dtype = DType::kI32; }},
        {"a_scale[0] is f32 [4, 5, 1], need f32 of one element or [4, 6, 1]",
         [&](Args&) { a_scales_[0]->sizes[1] = 5; }},
        {"b_scale[0] is f32 [1, 4], need f32 of one element or [1, 5]",
         [&](Args&) { b_scales_[0]->sizes[1] = 4; }},
        {"bias[1] has sizes [4], need [5]: all columns", [&](Args&) { biases_[1]->sizes[0] = 4; }},
        {"result_scale[0] is f32 [1, 5]", [&](Args&) { result_scales_[0] = columns_.view(); }},
        {"reduce_op must be sum or avg", [](Args& args) { args.reduce_op = static_cast<coll::ReduceOp>(7); }},
        {"partials is f16, need bf16 as out or f32", [](Args& args) { args.partials = DType::kF16; }},
    };
    if constexpr (requires(Args args) { args.scatter_dim; }) {
      changes.push_back({"scatter_dim is 3, need 0 to 2", [](Args& args) { args.scatter_dim = 3; }});
    } else {
      changes.push_back({"a_scale[0] is f32 [4, 6, 1] strides [1, 4, 1]", [&](Args&) {
                           a_scales_[0]->strides = {1, 4, 1};
                         }});
    }
    return changes;
  }

  std::vector<Change<Args>> wrong_outputs() {
    return {
        {"out is i32", [](Args& args) { args.out.dtype = DType::kI32; }},
        {"out has sizes [4, 6, 8], need [4, 6, 5]", [&](Args& args) { args.out = plain_.view(); }},
        {"product is f32, need bf16 as out", [](Args& args) { args.product->dtype = DType::kF32; }},
        {"product (240 bytes", [](Args& args) { args.product->data = args.out.data; }},
        {"out (240 bytes", [&](Args& args) { args.out.data = a_scales_[0]->data; }},
        {"cannot run on " + to_string(device_.id()), [](Args& args) { args.algorithm = Algorithm::kNative; },
         ErrorCode::kUnsupported},
    };
  }

 private:
  Device& device_;
  Guarded a_{device_, Dims{4, 6, 8}, DType::kF8E4M3};
  Guarded b_{device_, Dims{8, 5}, DType::kF8E5M2};
  Guarded plain_{device_, Dims{4, 6, 8}, DType::kBF16};
  Guarded plain_b_{device_, Dims{8, 5}, DType::kBF16};
  Guarded rows_{device_, Dims{4, 6, 1}, DType::kF32};
  Guarded columns_{device_, Dims{1, 5}, DType::kF32};
  Guarded bias_{device_, Dims{5}, DType::kBF16};
  Guarded out_{device_, Dims{4, 6, 5}, DType::kBF16};
  Guarded product_{device_, Dims{4, 6, 5}, DType::kBF16};
  std::vector<TensorView> as_, bs_;
  std::vector<std::optional<TensorView>> a_scales_, b_scales_, biases_, result_scales_;
};

TEST(FusedScaledArguments, all_gather_scaled_matmul_refuses) {
  test::expect_refusals<GatherArguments>(test::cpu_cases({1}).front(), fused_all_gather_scaled_matmul);
  test::expect_refusals<QuantizedGatherArguments>(test::cpu_cases({1}).front(),
                                                  fused_all_gather_scaled_matmul);
}

TEST(FusedScaledArguments, scales_by_blocks_have_a_call_of_their_own) {
  Complaints complaints;
  test::on_ranks(test::cpu_cases({1}).front(), test::quick_config(), complaints,
                 [&](RankContextOfTest& rank) -> Result<void> {
                   GatherArguments arguments(rank.device);
                   AllGatherScaledMatmulArgs args = arguments.good();
                   const auto call = [&](ScaleMode mode) {
                     args.scale_mode = mode;
                     return fused_all_gather_block_scaled_matmul(args, rank.group, rank.stream);
                   };
                   expect_error(call(ScaleMode::kTensorwise), ErrorCode::kInvalidArgument,
                                "fused_all_gather_block_scaled_matmul: scale_mode is tensorwise, need "
                                "blockwise_sharded",
                                complaints);
                   for (const ScaleMode mode : {ScaleMode::kDetect, ScaleMode::kBlockwiseReplicated}) {
                     const auto report = call(mode);
                     if (!report) return tl::unexpected(report.error());
                   }
                   args.a_scale->sizes[1] = 5;
                   expect_error(call(ScaleMode::kDetect), ErrorCode::kInvalidArgument,
                                "scale_mode is blockwise_sharded", complaints);
                   return rank.stream.synchronize();
                 });
  EXPECT_EQ(complaints.text(), "");
}

TEST(FusedScaledArguments, slices_of_k_have_whole_blocks_of_scales) {
  Complaints complaints;
  test::on_ranks(test::cpu_cases({2}).front(), test::quick_config(), complaints,
                 [&](RankContextOfTest& rank) -> Result<void> {
                   Guarded a(rank.device, Dims{3, 100}, DType::kF8E4M3);
                   Guarded a_scale(rank.device, Dims{3, 1}, DType::kF32);
                   Guarded b(rank.device, Dims{200, 4}, DType::kF8E4M3);
                   Guarded b_scale(rank.device, Dims{2, 1}, DType::kF32);
                   Guarded out(rank.device, Dims{3, 4}, DType::kBF16);
                   expect_error(
                       fused_all_gather_block_scaled_matmul({.a = a.view(),
                                                             .b = b.view(),
                                                             .a_scale = a_scale.view(),
                                                             .b_scale = b_scale.view(),
                                                             .gather_dim = 1,
                                                             .gather_size = 200,
                                                             .out = out.view()},
                                                            rank.group, rank.stream),
                       ErrorCode::kInvalidArgument,
                       "2 ranks' slices of gather_size 200 begin at multiples of 100, need multiples of "
                       "128, the elements of k that share a scale. Gather another dim, or pad gather_size "
                       "with zeros to 256",
                       complaints);
                   return {};
                 });
  EXPECT_EQ(complaints.text(), "");
}

TEST(FusedScaledArguments, scaled_matmul_reduce_scatter_refuses) {
  test::expect_refusals<SumArguments<ScaledMatmulReduceScatterArgs>>(test::cpu_cases({1}).front(),
                                                                     fused_scaled_matmul_reduce_scatter);
}

TEST(FusedScaledArguments, scaled_matmul_all_reduce_refuses) {
  test::expect_refusals<SumArguments<ScaledMatmulAllReduceArgs>>(test::cpu_cases({1}).front(),
                                                                 fused_scaled_matmul_all_reduce);
}

TEST(FusedScaledArguments, the_shape_of_a_scale_tells_its_mode) {
  struct Shapes {
    Dims a;
    int dim;
    std::int64_t size;
    Dims scale;
    ScaleMode mode;
  };
  const std::vector<Shapes> all = {
      {{4, 8}, 0, 8, {1}, ScaleMode::kTensorwise},
      {{4, 8}, 0, 8, {4, 1}, ScaleMode::kRowwiseSharded},
      {{4, 8}, 0, 8, {8, 1}, ScaleMode::kRowwiseReplicated},
      // One row with a scale of its own: sharded is the safe reading.
      {{1, 8}, 0, 2, {1, 1}, ScaleMode::kRowwiseSharded},
      {{1, 8}, 0, 2, {1}, ScaleMode::kTensorwise},
      {{1, 1, 8}, 1, 2, {1, 1}, ScaleMode::kTensorwise},
      {{2, 3, 8}, 1, 6, {2, 3, 1}, ScaleMode::kRowwiseSharded},
      {{2, 3, 8}, 1, 6, {2, 6, 1}, ScaleMode::kRowwiseReplicated},
      {{2, 3, 8}, 1, 6, {6, 1}, ScaleMode::kRowwiseSharded},
      {{2, 3, 8}, 1, 6, {12, 1}, ScaleMode::kRowwiseReplicated},
      {{2, 0, 8}, 1, 1, {0, 1}, ScaleMode::kRowwiseSharded},
      {{4, 3}, 1, 6, {4, 1}, ScaleMode::kRowwiseSharded},
      {{4, 3}, 1, 6, {4, 2}, ScaleMode::kRowwiseReplicated},
  };
  float scale = 1;
  for (const Shapes& shapes : all) {
    AllGatherScaledMatmulArgs args;
    args.a = TensorView::contiguous(&scale, shapes.a, DType::kF8E4M3);
    args.a_scale = TensorView::contiguous(&scale, shapes.scale, DType::kF32);
    args.gather_dim = shapes.dim;
    args.gather_size = shapes.size;
    const auto mode = detect_scale_mode(args, 2);
    ASSERT_TRUE(mode) << mode.error().to_string();
    EXPECT_EQ(to_string(*mode), to_string(shapes.mode))
        << to_string(shapes.scale) << " for " << to_string(shapes.a) << " dim " << shapes.dim;
  }
}

/// What one of two ranks calls.
struct Call {
  ScaleMode mode = ScaleMode::kTensorwise;
  DType a = DType::kF8E4M3;
  std::optional<DType> quantize = {};  ///< of an a without a scale
  bool fast_accum = false;
  DType out = DType::kBF16;
  std::int64_t n = 5;
  std::vector<DType> also_gather = {DType::kBF16};
  std::int64_t also_last = 3;
};

Result<void> issue(RankContextOfTest& rank, const Call& call) {
  // Row-wise and by blocks: the same sizes, because k is one block.
  const Dims scale = call.mode == ScaleMode::kTensorwise ? Dims{1} : Dims{2, 1};
  Guarded a(rank.device, Dims{2, 8}, call.a);
  Guarded b(rank.device, Dims{8, call.n}, DType::kF8E4M3);
  Guarded a_scale(rank.device, scale, DType::kF32);
  Guarded b_scale(rank.device, Dims{1, call.n}, DType::kF32);
  Guarded out(rank.device, Dims{4, call.n}, call.out);
  std::deque<Guarded> tensors;
  std::vector<TensorView> also_gather, also_gathered;
  for (const DType dtype : call.also_gather) {
    also_gather.push_back(tensors.emplace_back(rank.device, Dims{2, call.also_last}, dtype).view());
    also_gathered.push_back(tensors.emplace_back(rank.device, Dims{4, call.also_last}, dtype).view());
  }
  const std::vector<TensorView> bs = {b.view()};
  const std::vector<TensorView> b_scales = {b_scale.view()};
  const std::vector<TensorView> outs = {out.view()};
  const auto report =
      fused_all_gather_scaled_matmul({.a = a.view(),
                                      .b = bs,
                                      .a_scale = call.quantize ? std::nullopt : std::optional(a_scale.view()),
                                      .scale_mode = call.mode,
                                      .quantize = call.quantize,
                                      .b_scale = b_scales,
                                      .gather_dim = 0,
                                      .gather_size = 4,
                                      .out = outs,
                                      .fast_accum = call.fast_accum,
                                      .also_gather = also_gather,
                                      .also_gathered = also_gathered,
                                      .algorithm = Algorithm::kPipelined},
                                     rank.group, rank.stream);
  const auto done = rank.stream.synchronize();
  return report ? done : tl::unexpected(report.error());
}

/// What one rank calls otherwise than the other.
struct Mutation {
  std::string name;
  std::function<void(Call&)> change;
  bool agrees = false;
};

void expect_agreement(const Call& good, const Mutation& mutation) {
  for (const int good_calls : {0, 3}) {
    Complaints complaints;
    test::on_ranks(test::cpu_cases({2}).front(), test::quick_config(), complaints,
                   [&](RankContextOfTest& rank) -> Result<void> {
                     Call call = good;
                     for (int i = 0; i < good_calls; ++i) {
                       if (auto ok = issue(rank, call); !ok) return ok;
                     }
                     // All are through: a refusal ends every wait of the group.
                     if (auto met = rank.group.all_gather({}, "good calls are over"); !met)
                       return tl::unexpected(met.error());
                     if (rank.group.rank() == 1) mutation.change(call);
                     const auto result = issue(rank, call);
                     if (mutation.agrees) return result;
                     expect_error(result, ErrorCode::kMismatch, "", complaints);
                     return {};
                   });
    EXPECT_EQ(complaints.text(), "") << mutation.name << " after " << good_calls << " calls";
  }
}

/// A scatter whose a is scaled by so many rows' scales, or as a whole by one.
Result<void> scatter(RankContextOfTest& rank, std::int64_t num_a_scales, std::int64_t num_b_scales) {
  Guarded a(rank.device, Dims{4, 8}, DType::kF8E4M3);
  Guarded b(rank.device, Dims{8, 5}, DType::kF8E4M3);
  Guarded a_scale(rank.device, Dims{num_a_scales, 1}, DType::kF32);
  Guarded b_scale(rank.device, Dims{1, num_b_scales}, DType::kF32);
  Guarded out(rank.device, Dims{2, 5}, DType::kBF16);
  const auto report = fused_scaled_matmul_reduce_scatter({.a = a.view(),
                                                          .b = b.view(),
                                                          .a_scale = a_scale.view(),
                                                          .b_scale = b_scale.view(),
                                                          .out = out.view(),
                                                          .algorithm = Algorithm::kPipelined},
                                                         rank.group, rank.stream);
  const auto done = rank.stream.synchronize();
  return report ? done : tl::unexpected(report.error());
}

TEST(FusedScaledArguments, ranks_agree_on_what_scatters_scale) {
  Complaints complaints;
  test::on_ranks(test::cpu_cases({2}).front(), test::quick_config(), complaints,
                 [&](RankContextOfTest& rank) -> Result<void> {
                   const bool is_first = rank.group.rank() == 0;
                   if (auto ok = scatter(rank, 4, is_first ? 1 : 5); !ok) return ok;
                   if (auto met = rank.group.all_gather({}, "the good call is over"); !met)
                     return tl::unexpected(met.error());
                   expect_error(scatter(rank, is_first ? 1 : 4, 5), ErrorCode::kMismatch, "scaled by rows",
                                complaints);
                   return {};
                 });
  EXPECT_EQ(complaints.text(), "");
}

TEST(FusedScaledArguments, what_ranks_have_to_agree_on) {
  const std::vector<Mutation> mutations = {
      {"mode", [](Call& call) { call.mode = ScaleMode::kRowwiseSharded; }},
      {"mode by blocks", [](Call& call) { call.mode = ScaleMode::kBlockwiseSharded; }},
      {"type of a", [](Call& call) { call.a = DType::kF8E5M2; }},
      {"fast sums", [](Call& call) { call.fast_accum = true; }},
      {"type beside", [](Call& call) { call.also_gather = {DType::kF16}; }},
      {"size beside", [](Call& call) { call.also_last = 4; }},
      {"one more beside", [](Call& call) { call.also_gather.push_back(DType::kBF16); }},
      {"none beside", [](Call& call) { call.also_gather.clear(); }},
      {"type of out", [](Call& call) { call.out = DType::kF8E5M2; }, true},
      {"columns of b", [](Call& call) { call.n = 6; }, true},
  };
  const Call scaled;
  for (const Mutation& mutation : mutations) expect_agreement(scaled, mutation);
  const Call quantized{.mode = ScaleMode::kRowwiseSharded, .a = DType::kBF16, .quantize = DType::kF8E4M3};
  expect_agreement(quantized, {"nothing", [](Call&) {}, true});
  expect_agreement(quantized, {"quantize", [](Call& call) { call.quantize = DType::kF8E5M2; }});
  expect_agreement(quantized, {"type of a", [](Call& call) { call.a = DType::kF16; }});
  expect_agreement(quantized, {"mode", [](Call& call) { call.mode = ScaleMode::kBlockwiseSharded; }});
}

}  // namespace
}  // namespace tandem
