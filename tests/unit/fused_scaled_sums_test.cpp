// fast_accum of the scaled ops reaches the products of their programs, and is a problem of its own.
#include <gtest/gtest.h>

#include <string>
#include <tandem/tandem.hpp>

namespace tandem {
namespace {

/// What the op would run, with and without fast sums.
template <class Args>
void expect_fast_sums(Args args, Group& group, Stream& stream) {
  for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined}) {
    args.algorithm = algorithm;
    for (const bool fast : {false, true, false}) {
      args.fast_accum = fast;
      const auto report = plan(args, group, stream);
      ASSERT_TRUE(report) << report.error().to_string();
      EXPECT_EQ(program_text(*report).find("fast sums") != std::string::npos, fast) << program_text(*report);
    }
  }
}

TEST(FusedScaledSums, are_fast_where_that_is_asked_for) {
  const auto done = run_thread_ranks(1, Config{}, [](Group& group) -> Result<void> {
    auto device = open_device({}, group.config());
    if (!device) return tl::unexpected(device.error());
    auto stream = (*device)->create_stream();
    if (!stream) return tl::unexpected(stream.error());
    const Tensor a = Tensor::host({4, 8}, DType::kF8E4M3);
    const Tensor b = Tensor::host({8, 8}, DType::kF8E4M3);
    const Tensor scale = Tensor::host({1}, DType::kF32);
    const Tensor out = Tensor::host({4, 8}, DType::kBF16);
    expect_fast_sums(AllGatherScaledMatmulArgs{.a = a.view(),
                                               .b = b.view(),
                                               .a_scale = scale.view(),
                                               .b_scale = scale.view(),
                                               .gather_size = 4,
                                               .out = out.view()},
                     group, **stream);
    expect_fast_sums(ScaledMatmulReduceScatterArgs{.a = a.view(),
                                                   .b = b.view(),
                                                   .a_scale = scale.view(),
                                                   .b_scale = scale.view(),
                                                   .out = out.view()},
                     group, **stream);
    return {};
  });
  EXPECT_TRUE(done) << done.error().to_string();
}

}  // namespace
}  // namespace tandem
