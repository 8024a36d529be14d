#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "conformance/fused_harness.hpp"

// The layout helpers: equal values, one copy at most, and then none in the op.

namespace tandem {
namespace {

using test::Complaints;
using test::Guarded;
using test::JobCase;
using test::RankContextOfTest;

bool same_values(Device& device, const TensorView& view, const Guarded& of) {
  // Through a contiguous copy: the helper's storage has no guards to read it by.
  const auto stream = device.create_stream();
  Guarded copy(device, view.sizes, view.dtype);
  if (!stream || !(*stream)->copy(view, copy.view()) || !(*stream)->synchronize()) return false;
  copy.download();
  harness::Wrong wrong;
  compare_equal(copy.host(), of.host(), "copy", wrong);
  return wrong.count == 0;
}

class FusedLayout : public ::testing::TestWithParam<JobCase> {};
INSTANTIATE_TEST_SUITE_P(Ranks, FusedLayout, ::testing::ValuesIn(test::exact_cases({1})), test::job_name);

TEST_P(FusedLayout, restriding_copies_once_and_not_again) {
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    Guarded t(rank.device, test::dense({8, 6, 4, 3}), test::generated({8, 6, 4, 3}, DType::kF32, 1));
    for (int dim = 0; dim < 4; ++dim) {
      auto once = restride_for_all_gather_matmul(t.view(), dim, rank.stream);
      if (!once) return tl::unexpected(once.error());
      if (auto done = rank.stream.synchronize(); !done) return done;
      EXPECT_TRUE(once->view.movedim(dim, 0).is_contiguous()) << dim;
      EXPECT_TRUE(same_values(rank.device, once->view, t)) << dim;
      EXPECT_EQ(once->storage.owner() == nullptr, dim == 0) << "dim " << dim << ": copied although it fits";
      const auto again = restride_for_matmul_reduce_scatter(once->view, dim, rank.stream);
      if (!again) return tl::unexpected(again.error());
      EXPECT_EQ(again->storage.owner(), nullptr) << dim;
      EXPECT_EQ(again->view.data, once->view.data) << dim;
    }
    return rank.stream.synchronize();
  });
  EXPECT_EQ(complaints.text(), "");
}

TEST_P(FusedLayout, bad_permutations_are_refused) {
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    Guarded t(rank.device, Dims{2, 3}, DType::kF32);
    for (const std::vector<int>& perm : {std::vector<int>{0}, {0, 0}, {1, 2}, {-1, 0}, {0, 1, 1}}) {
      const auto result = make_contiguous_for_perm(t.view(), perm, rank.stream);
      EXPECT_FALSE(result) << perm.size();
      if (!result) {
        EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument);
      }
    }
    EXPECT_FALSE(restride_for_all_gather_matmul(t.view(), 2, rank.stream));
    EXPECT_FALSE(restride_for_matmul_reduce_scatter(t.view(), -1, rank.stream));
    return {};
  });
  EXPECT_EQ(complaints.text(), "");
}

bool has_layout(const Result<Tensor>& tensor, DType dtype, const Result<Layout>& layout) {
  return tensor && layout && tensor->dtype() == dtype && tensor->sizes() == layout->sizes &&
         tensor->view().strides == layout->strides;
}

// What make_output() and make_gathered() give is what the ops take.
TEST_P(FusedLayout, made_outputs_are_taken) {
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    Guarded a(rank.device, Dims{4, 6, 8}, DType::kF32);
    Guarded b(rank.device, Dims{8, 5}, DType::kF32);
    for (const int dim : {0, 1, 2}) {
      AllGatherMatmulArgs gather{
          .a = a.view(), .b = b.view(), .gather_dim = dim, .gather_size = a.view().size(dim)};
      const auto out = make_output(gather, rank.device);
      const auto gathered = make_gathered(gather, rank.device);
      EXPECT_TRUE(has_layout(out, DType::kF32, output_layout(gather, 0))) << dim;
      EXPECT_TRUE(has_layout(gathered, DType::kF32, gathered_layout(gather))) << dim;
      EXPECT_FALSE(make_output(gather, rank.device, 1)) << "there is one b";
      gather.out = out->view();
      gather.gathered = gathered->view();
      EXPECT_TRUE(fused_all_gather_matmul(gather, rank.group, rank.stream)) << dim;

      MatmulReduceScatterArgs scatter{.a = a.view(), .b = b.view(), .scatter_dim = dim};
      const auto part = make_output(scatter, rank.group, rank.device);
      EXPECT_TRUE(has_layout(part, DType::kF32, output_layout(scatter, 1, 0))) << dim;
      scatter.out = part->view();
      EXPECT_TRUE(fused_matmul_reduce_scatter(scatter, rank.group, rank.stream)) << dim;

      MatmulAllReduceArgs all_reduce{.a = a.view(), .b = b.view()};
      const auto sum = make_output(all_reduce, rank.device);
      EXPECT_TRUE(has_layout(sum, DType::kF32, output_layout(all_reduce))) << dim;
      all_reduce.out = sum->view();
      EXPECT_TRUE(can_run(all_reduce, rank.group, rank.stream)) << dim;
      EXPECT_TRUE(fused_matmul_all_reduce(all_reduce, rank.group, rank.stream)) << dim;
      if (auto done = rank.stream.synchronize(); !done) return done;
    }
    return {};
  });
  EXPECT_EQ(complaints.text(), "");
}

TEST_P(FusedLayout, outputs_of_scaled_products_are_made_in_any_type) {
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    Guarded a(rank.device, Dims{4, 6, 8}, DType::kF8E4M3);
    Guarded b(rank.device, Dims{8, 5}, DType::kF8E4M3);
    const AllGatherScaledMatmulArgs gather{.a = a.view(), .b = b.view(), .gather_dim = 1, .gather_size = 6};
    EXPECT_TRUE(
        has_layout(make_output(gather, DType::kBF16, rank.device), DType::kBF16, output_layout(gather, 0)));
    EXPECT_TRUE(has_layout(make_gathered(gather, rank.device), DType::kF8E4M3, gathered_layout(gather)));
    const ScaledMatmulReduceScatterArgs scatter{.a = a.view(), .b = b.view(), .scatter_dim = 1};
    EXPECT_TRUE(has_layout(make_output(scatter, DType::kF32, rank.group, rank.device), DType::kF32,
                           output_layout(scatter, 1, 0)));
    const ScaledMatmulAllReduceArgs all_reduce{.a = a.view(), .b = b.view()};
    EXPECT_TRUE(has_layout(make_output(all_reduce, DType::kF32, rank.device), DType::kF32,
                           output_layout(all_reduce)));
    return {};
  });
  EXPECT_EQ(complaints.text(), "");
}

TEST_P(FusedLayout, tensors_of_impossible_layouts_are_not_made) {
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    constexpr std::int64_t kMany = std::int64_t{1} << 61;
    for (const Layout& layout : {Layout{{2, 3}, {3}}, Layout{{-1}, {1}}, Layout{{2, 3}, {-3, 1}},
                                 Layout{{2, kMany}, {kMany, 1}}, Layout{{3}, {kMany}}}) {
      const auto made = make_tensor(layout, DType::kF32, rank.device);
      EXPECT_TRUE(!made && made.error().code() == ErrorCode::kInvalidArgument) << to_string(layout.sizes);
    }
    const auto nothing = make_tensor({{kMany, 0}, {kMany, 1}}, DType::kF32, rank.device);
    EXPECT_TRUE(nothing && nothing->view().numel() == 0);
    return {};
  });
  EXPECT_EQ(complaints.text(), "");
}

// The report says when an op copies for strides; on restrided operands it does not.
TEST_P(FusedLayout, ops_copy_nothing_that_is_restrided) {
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    Guarded t(rank.device, Dims{4, 6, 8}, DType::kF32);
    Guarded b(rank.device, Dims{8, 5}, DType::kF32);
    const std::vector<TensorView> bs = {b.view()};
    for (const int dim : {0, 1}) {
      for (const bool restrided : {false, true}) {
        Restrided held{t.view(), {}};
        if (restrided) {
          auto made = restride_for_all_gather_matmul(t.view(), dim, rank.stream);
          if (!made) return tl::unexpected(made.error());
          held = *std::move(made);
        }
        const bool copies = !restrided && dim == 1;
        AllGatherMatmulArgs gather{
            .a = held.view, .b = bs, .gather_dim = dim, .gather_size = t.view().size(dim)};
        const auto layout = output_layout(gather, 0);
        if (!layout) return tl::unexpected(layout.error());
        Guarded out(rank.device, *layout, DType::kF32);
        const std::vector<TensorView> outs = {out.view()};
        gather.out = outs;
        const auto gathered = fused_all_gather_matmul(gather, rank.group, rank.stream);
        if (!gathered) return tl::unexpected(gathered.error());
        EXPECT_EQ(gathered->reason.find("copied") != std::string_view::npos, copies) << gathered->reason;

        Guarded reduced(rank.device, Dims{4, 6, 5}, DType::kF32);
        const std::vector<TensorView> as = {held.view};
        const auto scattered = fused_matmul_reduce_scatter(
            {.a = as, .b = bs, .scatter_dim = dim, .out = reduced.view()}, rank.group, rank.stream);
        if (!scattered) return tl::unexpected(scattered.error());
        EXPECT_EQ(scattered->reason.find("copied") != std::string_view::npos, copies) << scattered->reason;
        if (auto done = rank.stream.synchronize(); !done) return done;
      }
    }
    return {};
  });
  EXPECT_EQ(complaints.text(), "");
}

}  // namespace
}  // namespace tandem
