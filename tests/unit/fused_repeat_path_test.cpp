#include <gtest/gtest.h>

#include <barrier>
#include <string>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "support/allocation_count.hpp"

// Once warm, both ops allocate nothing on any thread, by either algorithm and on every dim, on every backend.
// What a driver or a vendor's library takes by means of its own is not counted.

namespace tandem {
namespace {

using test::Complaints;
using test::Guarded;
using test::JobCase;
using test::RankContextOfTest;

struct Case {
  bool gather;
  int dim;
  Algorithm algorithm;
  JobCase job;
};

constexpr int kWorld = 2;

std::string name_of(const Case& c) {
  return std::string(c.gather ? "gather" : "scatter") + "_dim" + std::to_string(c.dim) + "_" +
         std::string(to_string(c.algorithm)) + "_" + to_string(c.job);
}
void PrintTo(const Case& c, std::ostream* out) {
  *out << name_of(c);
}

class FusedRepeatPath : public ::testing::TestWithParam<Case> {};

TEST_P(FusedRepeatPath, allocates_nothing) {
  const Case c = GetParam();
  Complaints complaints;
  std::barrier<> meet(kWorld);
  std::int64_t allocated = -1;
  Config config = test::quick_config();
  config.isa = "scalar";  // the better kernels refuse, which must cost nothing either
  test::on_ranks(c.job, config, complaints, [&](RankContextOfTest& rank) -> Result<void> {
    Dims shard = {8, 6};
    shard[c.dim] /= kWorld;
    Guarded a(rank.device, c.gather ? shard : Dims{8, 4}, DType::kBF16);
    Guarded b(rank.device, c.gather ? Dims{6, 5} : Dims{4, 6}, DType::kBF16);
    Dims result = c.gather ? Dims{8, 5} : Dims{8, 6};
    if (!c.gather) result[c.dim] /= kWorld;
    Guarded out(rank.device, result, DType::kBF16);
    Guarded bias(rank.device, Dims{c.gather ? 5 : 6}, DType::kBF16);
    const std::vector<TensorView> as = {a.view(), a.view()};
    const std::vector<TensorView> bs = {b.view(), b.view()};
    const std::vector<TensorView> outs = {out.view()};
    const std::vector<TensorView> biases = {bias.view()};
    const auto once = [&]() -> Result<void> {
      const auto report = c.gather ? fused_all_gather_matmul({.a = a.view(),
                                                              .b = std::span(bs).first(1),
                                                              .gather_dim = c.dim,
                                                              .gather_size = c.dim == 0 ? 8 : 6,
                                                              .out = outs,
                                                              .bias = biases,
                                                              .algorithm = c.algorithm},
                                                             rank.group, rank.stream)
                                   : fused_matmul_reduce_scatter({.a = as,
                                                                  .b = bs,
                                                                  .scatter_dim = c.dim,
                                                                  .out = out.view(),
                                                                  .bias = bias.view(),
                                                                  .algorithm = c.algorithm},
                                                                 rank.group, rank.stream);
      if (!report) return tl::unexpected(report.error());
      return rank.stream.synchronize();
    };
    Result<void> result_of_all;
    for (int round = 0; round < 5 && result_of_all; ++round) result_of_all = once();
    meet.arrive_and_wait();
    const std::int64_t before = test::num_allocations();
    meet.arrive_and_wait();
    for (int round = 0; round < 10 && result_of_all; ++round) result_of_all = once();
    meet.arrive_and_wait();
    if (rank.group.rank() == 0) allocated = test::num_allocations() - before;
    meet.arrive_and_wait();
    return result_of_all;
  });
  EXPECT_EQ(complaints.text(), "");
  EXPECT_EQ(allocated, 0) << "in 10 calls on 2 ranks";
}

std::vector<Case> every_case() {
  std::vector<Case> all;
  for (const JobCase& job : test::all_cases({kWorld})) {
    for (const bool gather : {true, false}) {
      for (const int dim : {0, 1}) {
        for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined, Algorithm::kAuto}) {
          all.push_back({gather, dim, algorithm, job});
        }
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ops, FusedRepeatPath, ::testing::ValuesIn(every_case()),
                         [](const auto& c) { return name_of(c.param); });

}  // namespace
}  // namespace tandem
