// The fused op in two: all_gather_with_progress on one stream, async_input_mm behind its progress words on
// another. CPUs only: GPUs have no async_input_mm yet.
#include <gtest/gtest.h>

#include <cstring>
#include <tandem/coll/collectives.hpp>
#include <tandem/gemm/async_input_mm.hpp>
#include <tandem/gemm/mm.hpp>

#include "support/guarded_bytes.hpp"
#include "support/symm_rank.hpp"

namespace tandem::testing {
namespace {

constexpr std::int64_t kRows = 12;  // of a rank
constexpr std::int64_t kK = 33;
constexpr std::int64_t kN = 20;

class GemmGatherWithProgress : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GemmGatherWithProgress, ::testing::Values(1, 2, 3, 4, 8));

float element(int rank, std::int64_t idx) {
  return static_cast<float>((idx * 7 + rank * 13) % 17 - 8);
}

Result<void> gather_and_multiply(SymmRank& rank, int splits) {
  const int world = rank.size();
  const Tensor shard = rank.empty({kRows, kK});
  const auto handle = rank.meet(shard);
  const Tensor progress = rank.empty({world * splits}, DType::kU32);
  GuardedBytes all({world * kRows, kK}, DType::kF32);
  GuardedBytes out({world * kRows, kN}, DType::kF32);
  GuardedBytes expected({world * kRows, kN}, DType::kF32);
  std::vector<float> b(kK * kN);
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = element(99, static_cast<std::int64_t>(i));
  for (std::int64_t i = 0; i < kRows * kK; ++i) shard.view().data_as<float>()[i] = element(rank.rank(), i);

  const TensorView right = TensorView::contiguous(b.data(), {kK, kN}, DType::kF32);
  const auto side = rank.device->create_stream().value();
  const coll::AllGatherWithProgressArgs gather{.output = all.view({world * kRows, kK}, DType::kF32),
                                               .input = shard.view(),
                                               .progress = progress.view(),
                                               .splits_per_rank = splits,
                                               .input_handle = handle};
  if (auto done = coll::all_gather_with_progress(gather, rank.group, *side); !done) return done;
  // The order in which the pieces come: from the next rank on, the own last.
  const gemm::AsyncInputMmArgs product{.a = gather.output,
                                       .b = right,
                                       .out = out.view({world * kRows, kN}, DType::kF32),
                                       .a_chunk_signals = progress.view(),
                                       .a_chunk_pivot = (rank.rank() + 1) % world * splits};
  if (auto done = gemm::async_input_mm(product, *rank.stream); !done) return done;
  if (auto done = rank.finish(); !done) return done;
  if (auto done = side->synchronize(); !done) return done;

  std::vector<float> whole(static_cast<std::size_t>(world) * kRows * kK);
  for (int q = 0; q < world; ++q) {
    for (std::int64_t i = 0; i < kRows * kK; ++i)
      whole[static_cast<std::size_t>(q * kRows * kK + i)] = element(q, i);
  }
  const gemm::MmArgs plain{.a = TensorView::contiguous(whole.data(), {world * kRows, kK}, DType::kF32),
                           .b = right,
                           .out = expected.view({world * kRows, kN}, DType::kF32),
                           .bias = {}};
  if (auto done = gemm::mm(plain, *rank.stream); !done) return done;
  if (auto done = rank.finish(); !done) return done;
  EXPECT_EQ(std::memcmp(out.data(), expected.data(), static_cast<std::size_t>(out.size_bytes_held())), 0)
      << "rank " << rank.rank() << " of " << world << ", " << splits << " splits";
  EXPECT_TRUE(out.guards_are_whole() && all.guards_are_whole());
  return {};
}

TEST_P(GemmGatherWithProgress, IsTheProductOfTheWhole) {
  expect_ok(run_symm_ranks(GetParam(), {}, [](SymmRank& rank) -> Result<void> {
    for (const int splits : {1, 2, 3, 12}) {
      if (auto done = gather_and_multiply(rank, splits); !done) return done;
    }
    return {};
  }));
}

}  // namespace
}  // namespace tandem::testing
