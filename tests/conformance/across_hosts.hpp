#pragma once

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "harness/failure.hpp"
#include "harness/operands.hpp"

namespace tandem::test {

[[nodiscard]] inline bool is_native_across_hosts(const harness::Problem& problem, int num_hosts);

/// One rank's part of a problem, run by one algorithm and compared with f64.
class RankRunAcrossHosts {
 public:
  RankRunAcrossHosts(const harness::Problem& problem, Group& group, Device& device, Stream& stream)
      : problem_(problem),
        group_(group),
        stream_(stream),
        source_(problem),
        reference_(problem, source_),
        operands_(problem, source_, group.rank(), {.device = device}) {
    for (int i = 0; i < static_cast<int>(problem.n.size()); ++i) {
      out_.emplace_back(device, harness::take(layout_of_result(i)), problem.out_dtype());
      views_.push_back(out_.back().view());
    }
    if (!problem.gathered) return;
    gathered_.emplace(device, harness::take(gathered_layout(operands_.gather_args())), problem.dtype);
  }

  void run(Algorithm algorithm, Complaints& complaints) {
    for (const Guarded& out : out_) out.poison();
    if (gathered_) gathered_->poison();
    const OpReport report = harness::take(call(algorithm));
    if (algorithm != Algorithm::kAuto && report.algorithm != algorithm)
      complaints.add(fmt::format("{} ran instead", to_string(report.algorithm)));
    harness::take(stream_.synchronize());
    harness::Wrong wrong;
    for (int i = 0; i < static_cast<int>(out_.size()); ++i) {
      const Guarded& out = out_[static_cast<std::size_t>(i)];
      out.download();
      reference_.compare(i, window_of_result(problem_, i, group_.rank()), out.host(), wrong);
      if (!out.guards_are_whole()) wrong.add("bytes beside a result");
    }
    if (gathered_) {
      gathered_->download();
      reference_.compare_gathered(gathered_->host(), wrong);
      if (!gathered_->guards_are_whole()) wrong.add("bytes beside gathered");
    }
    if (wrong.count > 0)
      complaints.add(fmt::format("{} {} rank {}: {} wrong; {}", to_line(problem_), to_string(algorithm),
                                 group_.rank(), wrong.count, wrong.first));
  }
  /// By `native` where that takes the problem. It may take others, too; or they are refused.
  void run_native(Complaints& complaints) {
    const auto tried = call(Algorithm::kNative);
    if (tried) return run(Algorithm::kNative, complaints);
    if (is_native_across_hosts(problem_, group_.num_hosts()) ||
        tried.error().code() != ErrorCode::kUnsupported)
      complaints.add(fmt::format("{} by native: {}", to_line(problem_), tried.error().to_string()));
  }
  /// Enqueues only.
  Result<OpReport> call(Algorithm algorithm) {
    switch (problem_.op) {
      case harness::Op::kAllGatherMatmul: {
        if (problem_.is_scaled()) return scaled_gather(algorithm);
        AllGatherMatmulArgs args = operands_.gather_args();
        args.out = views_;
        args.algorithm = algorithm;
        if (gathered_) args.gathered = gathered_->view();
        return fused_all_gather_matmul(args, group_, stream_);
      }
      case harness::Op::kMatmulReduceScatter:
        return fused_matmul_reduce_scatter(sum_args(operands_.scatter_args(), algorithm), group_, stream_);
      case harness::Op::kMatmulAllReduce:
        break;
    }
    return fused_matmul_all_reduce(sum_args(operands_.all_reduce_args(), algorithm), group_, stream_);
  }
  /// Without a look at the results.
  void run_only(Algorithm algorithm) {
    harness::take(call(algorithm));
    harness::take(stream_.synchronize());
  }
  void download() const {
    for (const Guarded& out : out_) out.download();
  }
  /// As of the last download.
  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> all;
    for (const Guarded& out : out_) {
      const TensorView& view = out.host();
      const auto* begin = view.data_as<const std::byte>();
      all.insert(all.end(), begin, begin + view.size_bytes());
    }
    return all;
  }

 private:
  Result<OpReport> scaled_gather(Algorithm algorithm) {
    AllGatherScaledMatmulArgs args = operands_.scaled_gather_args();
    args.out = views_;
    args.algorithm = algorithm;
    return problem_.scales == harness::Scales::kBlock
               ? fused_all_gather_block_scaled_matmul(args, group_, stream_)
               : fused_all_gather_scaled_matmul(args, group_, stream_);
  }
  [[nodiscard]] Result<Layout> layout_of_result(int i) const {
    switch (problem_.op) {
      case harness::Op::kAllGatherMatmul:
        if (problem_.is_scaled()) return output_layout(operands_.scaled_gather_args(), i);
        return output_layout(operands_.gather_args(), i);
      case harness::Op::kMatmulReduceScatter:
        return output_layout(operands_.scatter_args(), group_.size(), group_.rank());
      case harness::Op::kMatmulAllReduce:
        break;
    }
    return output_layout(operands_.all_reduce_args());
  }
  template <class Args>
  [[nodiscard]] Args sum_args(Args args, Algorithm algorithm) const {
    args.out = views_.front();
    args.algorithm = algorithm;
    return args;
  }

  harness::Problem problem_;
  Group& group_;
  Stream& stream_;
  harness::GeneratedTensors source_;
  harness::Reference reference_;
  harness::RankOperands operands_;
  std::vector<Guarded> out_;
  std::vector<TensorView> views_;
  std::optional<Guarded> gathered_;
};

/// Whether `native` has to take it: a gather of rows, of which every rank has some, cut evenly enough for
/// products that wait, of all ranks and of each host's.
[[nodiscard]] inline bool is_native_across_hosts(const harness::Problem& problem, int num_hosts) {
  if (problem.op != harness::Op::kAllGatherMatmul || problem.dim == problem.a.size() - 1) return false;
  const std::int64_t total = problem.a[problem.dim];
  const std::int64_t unit_rows = numel(problem.a) / problem.a.back() / total;
  const std::int64_t part = shard_stride(total, problem.ranks);
  if (shard_of(total, problem.ranks, problem.ranks - 1).size == 0) return false;
  if (shard_stride(total * unit_rows, problem.ranks) != part * unit_rows) return false;
  const int per_host = problem.ranks / num_hosts;
  const std::int64_t of_last_host = total - (num_hosts - 1) * per_host * part;
  return per_host == 1 || shard_stride(of_last_host * unit_rows, per_host) == part * unit_rows;
}

/// With every dim, uneven shards, few rows, and enough rows to cross in chunks.
[[nodiscard]] inline std::vector<harness::Problem> gathers_across_hosts(std::int64_t w) {
  constexpr harness::Op kOp = harness::Op::kAllGatherMatmul;
  std::vector<harness::Problem> all;
  for (const bool gathered : {false, true}) {
    all.push_back({.op = kOp, .a = {2 * w, 24}, .n = {9}, .dim = 0, .gathered = gathered});
    all.push_back({.op = kOp, .a = {3 * w - 1, 24}, .n = {9, 5}, .dim = 0, .gathered = gathered});
    all.push_back({.op = kOp, .a = {3, 5 * w - 2, 16}, .n = {7}, .dim = 1, .gathered = gathered});
    all.push_back({.op = kOp, .a = {5, 4 * w}, .n = {7}, .dim = 1, .gathered = gathered});
    all.push_back({.op = kOp, .a = {2, 3, 4 * w - 1}, .n = {7, 3}, .dim = 2, .gathered = gathered});
  }
  all.push_back({.op = kOp, .a = {1, 24}, .n = {9}, .dim = 0});
  all.push_back({.op = kOp, .a = {200 * w - 7, 2048}, .n = {8}, .dim = 0, .bias = true});
  return all;
}
/// As many rows as native kernels take.
[[nodiscard]] inline std::vector<harness::Problem> gathers_of_many_rows(int ranks) {
  const std::int64_t w = ranks;
  std::vector<harness::Problem> all;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    all.push_back({.a = {512 * w, 256}, .n = {512}, .dim = 0});
    all.push_back({.a = {1024 * w, 512}, .n = {384, 264}, .dim = 0, .gathered = true});
    all.push_back({.a = {4, 512 * w, 128}, .n = {256}, .dim = 1, .bias = true});
    all.push_back({.a = {2048 * w, 136}, .n = {1000}, .dim = 0, .bias = true, .gathered = true});
    for (std::size_t i = all.size() - 4; i < all.size(); ++i) {
      all[i].op = harness::Op::kAllGatherMatmul;
      all[i].dtype = dtype;
      all[i].ranks = ranks;
    }
  }
  return all;
}
[[nodiscard]] inline std::vector<harness::Problem> scatters_across_hosts(std::int64_t w) {
  constexpr harness::Op kOp = harness::Op::kMatmulReduceScatter;
  std::vector<harness::Problem> all;
  for (const coll::ReduceOp reduce : {coll::ReduceOp::kSum, coll::ReduceOp::kAvg}) {
    all.push_back({.op = kOp, .a = {2 * w, 8 * w}, .n = {9}, .dim = 0, .reduce = reduce});
    all.push_back({.op = kOp, .a = {3 * w - 1, 8 * w}, .n = {9}, .dim = 0, .reduce = reduce});
    all.push_back({.op = kOp, .a = {3, 5 * w - 2, 8 * w}, .n = {7}, .dim = 1, .reduce = reduce});
    all.push_back({.op = kOp, .a = {6, 8 * w}, .n = {4 * w - 1}, .dim = 1, .reduce = reduce});
    all.push_back({.op = kOp, .a = {3, 5, 8 * w}, .n = {4 * w - 1}, .dim = 2, .reduce = reduce});
  }
  all.push_back({.op = kOp, .a = {1, 8 * w}, .n = {9}, .dim = 0});
  all.push_back({.op = kOp, .a = {200 * w - 7, 8 * w}, .n = {2048}, .dim = 0, .bias = true});
  return all;
}
[[nodiscard]] inline std::vector<harness::Problem> all_reduces_across_hosts(std::int64_t w) {
  constexpr harness::Op kOp = harness::Op::kMatmulAllReduce;
  std::vector<harness::Problem> all;
  for (const coll::ReduceOp reduce : {coll::ReduceOp::kSum, coll::ReduceOp::kAvg}) {
    all.push_back({.op = kOp, .a = {2 * w, 8 * w}, .n = {9}, .reduce = reduce});
    all.push_back({.op = kOp, .a = {3, 5 * w - 2, 8 * w}, .n = {7}, .reduce = reduce, .bias = true});
  }
  all.push_back({.op = kOp, .a = {1, 8 * w}, .n = {9}});
  return all;
}
[[nodiscard]] inline std::vector<harness::Problem> problems_across_hosts(int ranks) {
  std::vector<harness::Problem> all = gathers_across_hosts(ranks);
  for (const harness::Problem& scatter : scatters_across_hosts(ranks)) all.push_back(scatter);
  for (const harness::Problem& all_reduce : all_reduces_across_hosts(ranks)) all.push_back(all_reduce);
  const std::size_t count = all.size();
  for (std::size_t i = 0; i < count; ++i) {
    all[i].ranks = ranks;
    all.push_back(all[i]);
    all.back().dtype = DType::kBF16;
  }
  return all;
}

}  // namespace tandem::test
