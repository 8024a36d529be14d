#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <tandem/base/shard.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/fused/all_gather_matmul.hpp>
#include <tandem/fused/matmul_reduce_scatter.hpp>
#include <vector>

#include "support/guarded_bytes.hpp"
#include "support/symm_rank.hpp"

namespace tandem::testing {

/// Ops of groups over the same ranks, which hosts call in different orders. Every call is of a problem that
/// its group has not met: shapes grow from call to call.
enum class MixedOp { kGather, kScatter, kGatherMatmul, kNativeGatherMatmul, kMatmulScatter };

inline const std::array kMixedOps = {MixedOp::kGather, MixedOp::kScatter, MixedOp::kGatherMatmul,
                                     MixedOp::kNativeGatherMatmul, MixedOp::kMatmulScatter};

inline std::string to_string(MixedOp op) {
  static const std::array kNames = {"gather", "scatter", "gather_matmul", "native_gather_matmul",
                                    "matmul_scatter"};
  return kNames[static_cast<std::size_t>(op)];
}

inline std::string name_of_op(const ::testing::TestParamInfo<MixedOp>& info) {
  return to_string(info.param);
}

/// One call in flight and the memory that it uses.
class MixedCall {
 public:
  static constexpr std::int64_t kColumns = 4;

  /// `rows` a rank.
  MixedCall(MixedOp op, std::int64_t rows, Group& group)
      : op_(op),
        rows_(rows),
        world_(group.size()),
        all_(rows * world_),
        in_(Dims{is_gather() ? rows : all_, kColumns}, DType::kF32),
        weights_(Dims{kColumns, kColumns}, DType::kF32),
        out_(Dims{is_gather() ? all_ : rows, kColumns}, DType::kF32) {
    set_all(in_, (is_gather() ? rows : all_) * kColumns, static_cast<float>(group.rank() + 1));
    set_all(weights_, kColumns * kColumns, 1);
  }

  [[nodiscard]] Result<void> enqueue(Group& group, Stream& stream) {
    const Dims in_sizes{is_gather() ? rows_ : all_, kColumns};
    const TensorView in = in_.view(in_sizes, DType::kF32);
    const TensorView weights = weights_.view({kColumns, kColumns}, DType::kF32);
    const TensorView out = out_.view({is_gather() ? all_ : rows_, kColumns}, DType::kF32);
    switch (op_) {
      case MixedOp::kGather:
        return coll::all_gather({in, out}, group, stream);
      case MixedOp::kScatter:
        return coll::reduce_scatter({.input = in, .output = out, .bias = {}}, group, stream);
      case MixedOp::kMatmulScatter:
        return without_report(fused_matmul_reduce_scatter(
            {.a = std::span(&in, 1), .b = std::span(&weights, 1), .out = out}, group, stream));
      case MixedOp::kGatherMatmul:
      case MixedOp::kNativeGatherMatmul:
        break;
    }
    const bool is_native = op_ == MixedOp::kNativeGatherMatmul;
    return without_report(
        fused_all_gather_matmul({.a = in,
                                 .b = std::span(&weights, 1),
                                 .gather_size = all_,
                                 .out = std::span(&out, 1),
                                 .algorithm = is_native ? Algorithm::kNative : Algorithm::kPipelined},
                                group, stream));
  }

  [[nodiscard]] bool is_untouched() { return out_.is_untouched(); }

  void expect_right() {
    const auto* values = reinterpret_cast<const float*>(out_.data());
    const std::int64_t num_rows = is_gather() ? all_ : rows_;
    for (std::int64_t i = 0; i < num_rows * kColumns; ++i) {
      const auto source = static_cast<float>(i / (rows_ * kColumns) + 1);
      const auto sum = static_cast<float>(world_ * (world_ + 1)) / 2;
      float expected = is_gather() ? source : sum;
      if (op_ != MixedOp::kGather && op_ != MixedOp::kScatter) expected *= kColumns;
      ASSERT_EQ(values[i], expected) << to_string(op_) << ", " << rows_ << " rows a rank, element " << i;
    }
    EXPECT_TRUE(out_.guards_are_whole());
  }

 private:
  [[nodiscard]] bool is_gather() const { return op_ != MixedOp::kScatter && op_ != MixedOp::kMatmulScatter; }
  static void set_all(GuardedBytes& bytes, std::int64_t count, float value) {
    for (std::int64_t i = 0; i < count; ++i) reinterpret_cast<float*>(bytes.data())[i] = value;
  }
  static Result<void> without_report(const Result<OpReport>& report) {
    if (!report) return tl::unexpected(report.error());
    return {};
  }

  MixedOp op_;
  std::int64_t rows_;
  int world_;
  std::int64_t all_;
  GuardedBytes in_, weights_, out_;
};

/// A group and a stream of its own, and the calls that are queued there.
struct MixedGroup {
  Group* group = nullptr;
  std::unique_ptr<Stream> stream;
  std::deque<MixedCall> calls = {};

  [[nodiscard]] Result<void> call(MixedOp op, std::int64_t rows) {
    return calls.emplace_back(op, rows, *group).enqueue(*group, *stream);
  }
  [[nodiscard]] Result<void> finish() {
    if (auto done = stream->synchronize(); !done) return done;
    for (MixedCall& each : calls) each.expect_right();
    calls.clear();
    return {};
  }
};

/// A subgroup of all ranks.
inline Result<std::unique_ptr<Group>> twin_of(Group& group, std::string_view name) {
  std::vector<int> all(static_cast<std::size_t>(group.size()));
  for (std::size_t r = 0; r < all.size(); ++r) all[r] = static_cast<int>(r);
  return group.subgroup(all, name);
}

/// `rounds` calls of both groups; which comes first depends on the rank and the round.
inline Result<void> call_in_opposite_orders(SymmRank& rank, MixedOp op, int rounds) {
  auto second = twin_of(rank.group, "second");
  if (!second) return tl::unexpected(second.error());
  MixedGroup groups[] = {{&rank.group, rank.device->create_stream().value()},
                         {second->get(), rank.device->create_stream().value()}};
  for (int round = 0; round < rounds; ++round) {
    const int first = (rank.rank() + round) % 2;
    // Doubled now and then, so that workspaces grow in the middle of the run.
    const std::int64_t rows = (std::int64_t{1} << (round / 2)) * 96 + round;
    for (const int i : {first, 1 - first}) {
      if (auto done = groups[i].call(op, rows); !done) return done;
    }
  }
  for (MixedGroup& each : groups) {
    if (auto done = each.finish(); !done) return done;
  }
  return {};
}

/// Pairs of neighbours in a ring of three: each rank calls its two groups in the order of the ring, so that
/// nobody begins with a group that its peer begins with.
inline Result<void> call_round_a_ring(SymmRank& rank, MixedOp op) {
  constexpr int kRing = 3;
  std::unique_ptr<Group> pairs[kRing];
  for (int p = 0; p < kRing; ++p) {
    const std::array members{p, (p + 1) % kRing};
    if (rank.rank() != members[0] && rank.rank() != members[1]) continue;
    auto made = rank.group.subgroup(members, "pair");
    if (!made) return tl::unexpected(made.error());
    pairs[p] = *std::move(made);
  }
  MixedGroup own{pairs[rank.rank()].get(), rank.device->create_stream().value()};
  MixedGroup before{pairs[(rank.rank() + kRing - 1) % kRing].get(), rank.device->create_stream().value()};
  for (std::int64_t rows = 100; rows < 5000; rows *= 3) {
    if (auto done = own.call(op, rows); !done) return done;
    if (auto done = before.call(op, rows); !done) return done;
  }
  if (auto done = own.finish(); !done) return done;
  return before.finish();
}

}  // namespace tandem::testing
