#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "conformance/fused_harness.hpp"

// A group that ends while an op is still queued behind longer work than the group waits for. What the op
// works in has to stay until it has run: memory that is handed out meanwhile must be nobody else's.

namespace tandem {
namespace {

using test::Complaints;
using test::Guarded;
using test::JobCase;
using test::RankContextOfTest;

constexpr auto kPatience = std::chrono::milliseconds(50);  // what a group's end waits, twice

class FusedQueuedAtEnd : public ::testing::TestWithParam<JobCase> {
 protected:
  static constexpr std::int64_t kRows = 512;
  static constexpr std::int64_t kK = 128;
  static constexpr std::int64_t kN = 64;

  /// a with holes: it is copied into the group's memory first.
  struct Tensors {
    Tensors(Device& device, int world)
        : a(device, test::spread_out({kRows, kK}), DType::kBF16),
          b(device, Dims{kK, kN}, DType::kBF16),
          out(device, Dims{kRows * world, kN}, DType::kBF16) {
      a.fill([](std::int64_t idx) { return static_cast<double>(idx / kK % 7); });
      b.fill([](std::int64_t) { return 0.5; });
    }
    Guarded a, b, out;
  };

  static Result<void> end_early(RankContextOfTest& rank, Algorithm algorithm, Complaints& complaints) {
    auto group = test::subgroup_of_all(rank.group, "short");
    if (!group) return tl::unexpected(group.error());
    Tensors tensors(rank.device, rank.group.size());
    if (auto done = rank.stream.sleep(10 * kPatience); !done) return done;
    if (auto done =
            test::gather_and_multiply(tensors.a, tensors.b, tensors.out, algorithm, **group, rank.stream);
        !done)
      return done;
    if (auto met = rank.group.all_gather({}, "all have enqueued"); !met) return tl::unexpected(met.error());
    group->reset();
    // As much as was used, and more.
    std::deque<Guarded> others;
    for (int i = 0; i < 8; ++i) others.emplace_back(rank.device, Dims{kRows << (i % 4), kK}, DType::kBF16);
    const auto ran = rank.stream.synchronize();
    for (Guarded& other : others) {
      const std::vector<std::byte> before = other.bytes();
      other.download();
      if (other.bytes() != before) complaints.add("memory that was handed out anew was written to");
    }
    if (ran) {
      check_out(tensors, rank.group.size(), complaints);
    } else if (!is_of_the_end(ran.error())) {
      complaints.add(ran.error().to_string());
    }
    return {};
  }

  /// A timeout on GPUs; a CPU's queue asks first whether group and handle are still there.
  static bool is_of_the_end(const Error& error) {
    return error.code() == ErrorCode::kTimeout ||
           error.text().find("group was destroyed while its") != std::string::npos;
  }

  static void check_out(Tensors& tensors, int world, Complaints& complaints) {
    tensors.out.download();
    for (std::int64_t row = 0; row < kRows * world; ++row) {
      const double need = 0.5 * kK * static_cast<double>(row % kRows % 7);
      if (tensors.out.at(row * kN) == need) continue;
      complaints.add("row " + std::to_string(row) + " is " + std::to_string(tensors.out.at(row * kN)) +
                     ", need " + std::to_string(need));
      return;
    }
  }
};

TEST_P(FusedQueuedAtEnd, keeps_the_memory_that_the_op_works_in) {
  for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined, Algorithm::kNative}) {
    SCOPED_TRACE(to_string(algorithm));
    Config config = test::quick_config();
    config.op_timeout = kPatience;
    Complaints complaints;
    test::on_ranks(GetParam(), config, complaints, [&](RankContextOfTest& rank) -> Result<void> {
      return end_early(rank, algorithm, complaints);
    });
    EXPECT_EQ(complaints.text(), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, FusedQueuedAtEnd, ::testing::ValuesIn(test::exact_cases({1, 2})),
                         test::job_name);

}  // namespace
}  // namespace tandem
