#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "harness/reference.hpp"

// Runs cases of a scatter or an all-reduce against float64. A Case has `sizes` of the product, `dim`, `dtype`
// of out, `op`, `keeps_product`, `exact_partials` (which travel as f32 then),
// `to_all`, and
//   std::string text(int world, Algorithm algorithm) const;
// Operands are made of a rank and a Case, and have `args` and
//   harness::Expected product_at(int rank, std::int64_t row, std::int64_t column, bool in_steps) const;
// which is added in f32, or, in steps, rounded with each product of a list, and
//   double added_at(std::int64_t column) const;  // to the sum over ranks

namespace tandem::test {

/// An element of out. Pushes round each of their sums: of a list's products, and of several peers' partials.
/// So do sums of one host's ranks, where there are several hosts.
template <class Case>
[[nodiscard]] harness::Expected sum_at(const Case& c, const std::vector<harness::Expected>& partials,
                                       double added, bool rounds_sums) {
  const DType sent_as = c.exact_partials ? DType::kF32 : c.dtype;
  harness::Expected sum = sum_over_ranks(partials, sent_as, c.op, added);
  double magnitude = 0;
  for (const harness::Expected& partial : partials) magnitude += std::abs(partial.value);
  if (rounds_sums) sum.tolerance += harness::rounding_error(c.dtype, magnitude);
  return rounded(sum, c.dtype);
}

/// What the first rank to come got of each call: all ranks of an all-reduce get these bits.
class FirstBits {
 public:
  [[nodiscard]] bool are(const void* of_case, Algorithm algorithm, const std::vector<std::byte>& bits) {
    const std::lock_guard lock(mutex_);
    return first_.try_emplace({of_case, algorithm}, bits).first->second == bits;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<const void*, Algorithm>, std::vector<std::byte>> first_;
};

/// What the calls of all ranks have in common.
struct AllRanks {
  FirstBits first_bits;
  std::atomic<int> given = 0;  ///< calls that gave rows to their owners while they multiplied

  void count(const OpReport& report) {
    if (report.algorithm == Algorithm::kNative &&
        report.reason.find("is made before") == std::string_view::npos)
      ++given;
  }
};

/// The layout of out, and which part of the whole result that is.
template <class Args, class Case>
Result<Layout> layout_of(const Args& args, const Case& c, int world, int rank, harness::Window& window) {
  if constexpr (requires { args.scatter_dim; }) {
    window = {c.dim, shard_of(c.sizes[c.dim], world, rank)};
    return output_layout(args, world, rank);
  } else {
    window = {0, {0, c.sizes[0]}};
    return output_layout(args);
  }
}

/// What a native kernel takes, by the end of its name: in tiles that ranks share, and in those by owners.
/// Pairs of tiles need an even number of rows of tiles, and those beside each other are for one row.
inline std::vector<std::int64_t> rows_of_kernel(std::string_view kernel, int world) {
  if (kernel.ends_with("1x2")) return {100};
  return {200, std::int64_t{200} * world + (world == 2 ? 600 : 0)};
}

template <class Operands, class Case, class Op>
Result<void> run_scatter(RankContextOfTest& rank, const Case& c, bool same_bits, Op op,
                         Complaints& complaints, AllRanks& all) {
  const int world = rank.group.size();
  const int me = rank.group.rank();
  Operands in(rank, c);
  std::vector<std::byte> out_bits;
  std::vector<std::byte> product_bits;
  for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined, Algorithm::kNative}) {
    in.args.algorithm = algorithm;
    const std::string who = c.text(world, algorithm) + ", rank " + std::to_string(me);
    harness::Window window;
    const auto layout = layout_of(in.args, c, world, me, window);
    if (!layout) return tl::unexpected(layout.error());
    Guarded out(rank.device, *layout, c.dtype);
    in.args.out = out.view();
    std::optional<Guarded> product;
    if (c.keeps_product) in.args.product = product.emplace(rank.device, c.sizes, c.dtype).view();
    // All ranks find the same.
    if (algorithm == Algorithm::kNative && !can_run(in.args, rank.group, rank.stream)) continue;
    const auto report = op(in.args, rank.group, rank.stream);
    if (!report) return tl::unexpected(Error(report.error().code(), who + ": " + report.error().text()));
    if (report->algorithm != algorithm)
      complaints.add(who + ": ran " + std::string(to_string(report->algorithm)));
    if (auto done = rank.stream.synchronize(); !done) return done;
    all.count(*report);
    out.download();
    harness::Wrong wrong;
    const bool pushes = report->reason.find("ranks push partials") != std::string_view::npos;
    std::vector<harness::Expected> partials(static_cast<std::size_t>(world));
    const auto need = [&](std::int64_t row, std::int64_t column) {
      for (int q = 0; q < world; ++q) partials[q] = in.product_at(q, row, column, pushes);
      return sum_at(c, partials, in.added_at(column), pushes || rank.group.num_hosts() > 1);
    };
    compare_elements({c.sizes, window, out.host()}, "out", need, wrong);
    complaints.add(who, out, wrong);
    if (c.to_all && !all.first_bits.are(&c, algorithm, out.bytes()))
      complaints.add(who + ": out has other bits than another rank's");
    if (product) {
      product->download();
      const auto own = [&](std::int64_t row, std::int64_t column) {
        return rounded(in.product_at(me, row, column, pushes), c.dtype);
      };
      harness::Wrong wrong_product;
      compare_elements({c.sizes, {}, product->host()}, "product", own, wrong_product);
      complaints.add(who, *product, wrong_product);
    }
    if (algorithm == Algorithm::kSerial) {
      out_bits = out.bytes();
      if (product) product_bits = product->bytes();
      continue;
    }
    // `native` does not round the own partial.
    if (!same_bits || pushes || algorithm == Algorithm::kNative) continue;
    if (out_bits != out.bytes()) complaints.add(who + ": out has other bits than by serial");
    if (product && product_bits != product->bytes())
      complaints.add(who + ": product has other bits than by serial");
  }
  return {};
}

/// Returns how many calls of native gave rows to their owners while they multiplied.
template <class Operands, class Case, class Op>
int run_scatters(const JobCase& job, const std::vector<Case>& cases, Op op,
                 const Config& config = quick_config()) {
  Complaints complaints;
  AllRanks all;
  on_ranks(job, config, complaints, [&](RankContextOfTest& rank) -> Result<void> {
    for (const Case& c : cases) {
      if (auto ran = run_scatter<Operands>(rank, c, !job.vendor_products, op, complaints, all); !ran)
        return ran;
    }
    return check_pads(rank, complaints);
  });
  EXPECT_EQ(complaints.text(), "");
  return all.given;
}

}  // namespace tandem::test
