// Sizes at the edges of what integers hold, in every public call that makes memory or works on a view: what
// no memory has is an error with the sizes, and nothing is enqueued.
#include <gtest/gtest.h>

#include <string>
#include <tandem/gemm/packed_b.hpp>

#include "base/byte_size.hpp"
#include "support/edge_sizes.hpp"
#include "support/writing_calls.hpp"

namespace tandem::testing {
namespace {

constexpr std::int64_t kSlotBytes = 32 * 1024;  // one operand, apart from the others

template <class T>
void expect_refused(const Result<T>& result, const Dims& sizes, const std::string& what) {
  ASSERT_FALSE(result) << what << " takes " << to_string(sizes);
  const ErrorCode code = result.error().code();
  EXPECT_TRUE(code == ErrorCode::kInvalidArgument || code == ErrorCode::kOutOfMemory)
      << what << " " << to_string(sizes) << ": " << result.error().to_string();
}

TEST(BackendSizes, WhatNoMemoryHasIsNotAllocated) {
  expect_ok(run_symm_ranks(1, {}, [&](SymmRank& rank) -> Result<void> {
    for (const Dims& sizes : edge_sizes()) {
      for (const DType dtype : {DType::kU8, DType::kF32, DType::kF64}) {
        const auto num_bytes = byte_size(sizes, dtype, "t");
        if (num_bytes && may_be_had(*num_bytes)) continue;
        const auto plain = rank.device->allocate_tensor(sizes, dtype);
        const auto symmetric = symm::empty(sizes, dtype, *rank.device);
        if (num_bytes && *num_bytes <= 64) {
          EXPECT_TRUE(plain) << to_string(sizes);
          EXPECT_TRUE(symmetric) << to_string(sizes);
          continue;
        }
        expect_refused(plain, sizes, "allocate_tensor");
        expect_refused(symmetric, sizes, "symm::empty");
      }
    }
    for (const std::int64_t num_bytes : kEdges) {
      if (num_bytes >= 0 && (num_bytes <= 64 || may_be_had(num_bytes))) continue;
      expect_refused(rank.device->allocate(num_bytes), {num_bytes}, "allocate");
      expect_refused(symm::workspace(rank.group, *rank.device, num_bytes), {num_bytes}, "workspace");
    }
    return {};
  }));
}

TEST(BackendSizes, ViewsOfMoreThanAnyMemoryArePackedByNobody) {
  expect_ok(run_symm_ranks(1, {}, [&](SymmRank& rank) -> Result<void> {
    float values[64] = {};
    for (const Dims& sizes : edge_sizes()) {
      const auto num_bytes = byte_size(sizes, DType::kF32, "t");
      if (num_bytes && *num_bytes < std::int64_t{1} << 44) continue;
      TensorView b = TensorView::contiguous(values, sizes, DType::kF32);
      for (const bool is_repeated : {false, true}) {
        for (int d = 0; is_repeated && d < b.dim(); ++d) b.strides[d] = 0;
        expect_refused(gemm::pack_b(b, *rank.device), sizes, "pack_b");
      }
    }
    return {};
  }));
}

class BackendSizesOfViews : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Calls, BackendSizesOfViews,
                         ::testing::Range<std::size_t>(0, writing_calls(1).size()), [](const auto& of) {
                           const WritingCall call = writing_calls(1)[of.param];
                           return call.name + (call.variant.empty() ? "" : "_" + call.variant) + "_" +
                                  std::to_string(of.param);
                         });

TEST_P(BackendSizesOfViews, ThatNoMemoryHasAreRefused) {
  const WritingCall call = writing_calls(1)[GetParam()];
  expect_ok(run_symm_ranks(1, {}, [&](SymmRank& rank) -> Result<void> {
    const auto num_slots = static_cast<std::int64_t>(call.operands.size());
    const Tensor block = rank.empty({num_slots * kSlotBytes}, DType::kU8);
    const auto handle = rank.meet(block);
    std::vector<TensorView> good;
    for (const Operand& operand : call.operands) {
      auto* const data = block.view().data_as<std::byte>() + std::ssize(good) * kSlotBytes;
      good.push_back(TensorView::contiguous(data, operand.sizes, operand.dtype, block.view().device));
    }
    const auto expect = [&](const std::vector<TensorView>& views, const Dims& sizes,
                            const std::string& what) {
      CallSite site{rank, handle, views};
      const auto made = call.make(site);
      EXPECT_FALSE(made) << call.name << " takes " << what << " " << to_string(sizes);
      EXPECT_TRUE(rank.finish());
    };
    const auto resized = [](const TensorView& view, const Dims& sizes) {
      return TensorView::contiguous(view.data, sizes, view.dtype, view.device);
    };
    for (std::size_t i = 0; i < good.size(); ++i) {
      for (int d = 0; !call.operands[i].is_pointer && d < good[i].dim(); ++d) {
        for (const std::int64_t edge : kEdges) {
          Dims sizes = good[i].sizes;
          sizes[d] = edge;
          if (byte_size(sizes, good[i].dtype, "t")) continue;
          std::vector<TensorView> views = good;
          views[i] = resized(good[i], sizes);
          expect(views, sizes, call.operands[i].name);
        }
      }
    }
    // All alike: nothing but their bytes is wrong.
    for (const Dims& sizes : edge_sizes()) {
      std::vector<TensorView> views = good;
      bool all_fit = true;
      for (std::size_t i = 0; i < views.size(); ++i) {
        if (call.operands[i].is_pointer) continue;
        views[i] = resized(good[i], sizes);
        all_fit = all_fit && byte_size(sizes, good[i].dtype, "t");
      }
      if (!all_fit) expect(views, sizes, "all of");
    }
    return {};
  }));
}

}  // namespace
}  // namespace tandem::testing
