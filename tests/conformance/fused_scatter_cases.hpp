#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "harness/reference.hpp"

// Runs cases of a scatter op against float64. A Case has `sizes` of the product, `dim`, `dtype` of out, `op`,
// `keeps_product`, `exact_partials` (which travel as f32 then), and
//   std::string text(int world, Algorithm algorithm) const;
// Operands are made of a rank and a Case, and have `args` and
//   Expected product_at(int rank, const Dims& at) const;  // the rank's own sum of products
//   double added_at(const Dims& at) const;                // to the sum over ranks

namespace tandem::test {

/// The sum over ranks: each partial is rounded once, and they add in f32.
template <class Operands, class Case>
Expected output_at(const Operands& in, const Case& c, int world, const Dims& at) {
  const double share = c.op == coll::ReduceOp::kAvg ? 1.0 / world : 1.0;
  const DType partials = c.exact_partials ? DType::kF32 : c.dtype;
  Expected sum{.value = in.added_at(at)};
  double magnitude = 1;
  for (int q = 0; q < world; ++q) {
    const Expected part = in.product_at(q, at);
    sum.value += part.value * share;
    sum.error += (harness::rounding_error(partials, part.value) + part.error) * share;
    magnitude += std::abs(part.value);
  }
  sum.error += (world + 1) * std::ldexp(1.0, -24) * magnitude;
  return sum;
}

template <class Operands, class Case, class Op>
Result<void> run_scatter(RankContextOfTest& rank, const Case& c, bool same_bits, Op op,
                         Complaints& complaints) {
  const int world = rank.group.size();
  const int me = rank.group.rank();
  Operands in(rank, c);
  std::vector<std::byte> out_bits;
  std::vector<std::byte> product_bits;
  for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined}) {
    in.args.algorithm = algorithm;
    const std::string who = c.text(world, algorithm) + ", rank " + std::to_string(me);
    const auto layout = output_layout(in.args, world, me);
    if (!layout) return tl::unexpected(layout.error());
    Guarded out(rank.device, *layout, c.dtype);
    in.args.out = out.view();
    std::optional<Guarded> product;
    if (c.keeps_product) in.args.product = product.emplace(rank.device, c.sizes, c.dtype).view();
    const auto report = op(in.args, rank.group, rank.stream);
    if (!report) return tl::unexpected(Error(report.error().code(), who + ": " + report.error().text()));
    if (report->algorithm != algorithm)
      complaints.add(who + ": ran " + std::string(to_string(report->algorithm)));
    if (auto done = rank.stream.synchronize(); !done) return done;

    out.download();
    check_elements(out, who + ": out", complaints, [&](Dims at) {
      at[c.dim] += shard_of(c.sizes[c.dim], world, me).offset;
      return output_at(in, c, world, at);
    });
    if (product) {
      product->download();
      check_elements(*product, who + ": product", complaints,
                     [&](const Dims& at) { return in.product_at(me, at); });
    }
    if (algorithm == Algorithm::kSerial) {
      out_bits = out.bytes();
      if (product) product_bits = product->bytes();
      continue;
    }
    if (!same_bits) continue;
    if (out_bits != out.bytes()) complaints.add(who + ": out has other bits than by serial");
    if (product && product_bits != product->bytes())
      complaints.add(who + ": product has other bits than by serial");
  }
  return {};
}

template <class Operands, class Case, class Op>
void run_scatters(const JobCase& job, const std::vector<Case>& cases, Op op) {
  Complaints complaints;
  on_ranks(job, quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    for (const Case& c : cases) {
      if (auto ran = run_scatter<Operands>(rank, c, !job.vendor_products, op, complaints); !ran) return ran;
    }
    return check_pads(rank, complaints);
  });
  EXPECT_EQ(complaints.text(), "");
}

}  // namespace tandem::test
