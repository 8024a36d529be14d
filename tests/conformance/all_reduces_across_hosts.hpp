#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "conformance/across_hosts.hpp"
#include "conformance/fused_plain_cases.hpp"
#include "conformance/fused_scaled_cases.hpp"

namespace tandem::test {

[[nodiscard]] inline std::vector<PlainCase> plain_all_reduces(std::int64_t w) {
  std::vector<PlainCase> cases;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const bool exact : {false, true}) {
      cases.push_back({.sizes = {3, 2 * w + 1, 17},
                       .dtype = dtype,
                       .k = {9, 1, 20},
                       .op = coll::ReduceOp::kAvg,
                       .bias = true,
                       .keeps_product = true,
                       .spread = exact,
                       .shuffled = !exact,
                       .exact_partials = exact});
    }
  }
  for (const std::int64_t m : {std::int64_t{0}, std::int64_t{1}, w - 1, w + 1}) {
    for (const std::int64_t n : {0, 1, 7})
      cases.push_back({.sizes = {m, n}, .dtype = DType::kBF16, .k = {m % 2 == 0 ? 5 : 0}, .bias = n == 1});
  }
  for (PlainCase& one : cases) one.to_all = true;
  return cases;
}

[[nodiscard]] inline std::vector<ScaledCase> scaled_all_reduces(std::int64_t w) {
  std::vector<ScaledCase> cases;
  for (const DType out : {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3}) {
    for (const Scaled scaled : {Scaled::kTensorwise, Scaled::kRowwise, Scaled::kFlatRows, Scaled::kNo}) {
      cases.push_back({.sizes = {2, w + 1, 10},
                       .dtype = out,
                       .products = {{.scaled = scaled, .bias = true, .result_scale = true}, {.k = 2}},
                       .keeps_product = true,
                       .exact_partials = scaled == Scaled::kNo});
    }
  }
  cases.push_back({.sizes = {1, 3}, .products = {{.scaled = Scaled::kRowwise}}});
  for (ScaledCase& one : cases) one.to_all = true;
  return cases;
}

/// All-reduces with every option, each by `serial` and `pipelined`: all ranks get the same bits.
class AllReducesAcrossHosts {
 public:
  explicit AllReducesAcrossHosts(int ranks)
      : plain_(plain_all_reduces(ranks)), scaled_(scaled_all_reduces(ranks)) {}

  /// On one rank. `same_bits`: both algorithms have them.
  Result<void> run(RankContextOfTest& rank, bool same_bits, Complaints& complaints) {
    for (const PlainCase& c : plain_) {
      auto ran = run_scatter<PlainOperands<MatmulAllReduceArgs>>(rank, c, same_bits, fused_matmul_all_reduce,
                                                                 complaints, all_);
      if (!ran) return ran;
    }
    for (const ScaledCase& c : scaled_) {
      auto ran = run_scatter<ScaledOperands<ScaledMatmulAllReduceArgs>>(
          rank, c, same_bits, fused_scaled_matmul_all_reduce, complaints, all_);
      if (!ran) return ran;
    }
    return {};
  }

 private:
  std::vector<PlainCase> plain_;
  std::vector<ScaledCase> scaled_;
  AllRanks all_;
};

/// All ranks get the same bits of a sum that crosses in chunks. Where products of any number of rows have the
/// same bits, as on CPUs, those are the bits of a sum that crosses as a whole.
inline void check_bits_of_chunks(RankContextOfTest& rank, Complaints& complaints) {
  const bool is_on_cpu = rank.device.id().kind == DeviceKind::kCpu;
  const std::int64_t w = rank.group.size();
  const harness::Problem problem{.op = harness::Op::kMatmulAllReduce,
                                 .a = {(is_on_cpu ? 800 : 4200) * w - 7, w},
                                 .n = {is_on_cpu ? 256 : 32},
                                 .ranks = rank.group.size(),
                                 .bias = true};
  RankRunAcrossHosts run(problem, rank.group, rank.device, rank.stream);
  const auto bytes_by = [&](Algorithm algorithm) {
    run.run_only(algorithm);
    run.download();
    return run.bytes();
  };
  const std::vector<std::byte> whole = bytes_by(Algorithm::kSerial);
  const std::vector<std::byte> in_chunks = bytes_by(Algorithm::kPipelined);
  if (is_on_cpu && in_chunks != whole) complaints.add("an all-reduce has other bits in chunks");
  for (const std::vector<std::byte>* const bytes : {&whole, &in_chunks}) {
    const std::size_t mine =
        std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
    const auto all = harness::take(rank.group.all_gather(std::as_bytes(std::span(&mine, 1)), "bits"));
    for (const auto& other : all) {
      if (other != all.front()) complaints.add("ranks have other bits of an all-reduce");
    }
  }
}

}  // namespace tandem::test
