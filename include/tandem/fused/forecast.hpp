#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <tandem/base/dtype.hpp>
#include <tandem/base/error.hpp>
#include <tandem/cost/machine_file.hpp>
#include <tandem/fused/all_gather_scaled_matmul.hpp>
#include <tandem/fused/report.hpp>
#include <vector>

namespace tandem {

/// The fused ops whose times can be foretold.
enum class ForecastOp : std::uint8_t { kAllGatherMatmul, kMatmulReduceScatter, kMatmulAllReduce };

/// One fused op on the GPUs of a node that need not be there.
/// Shapes:  m, n, k are those of the product that one rank computes: of a gather the whole m and the local n,
///          of a scatter or an all-reduce the whole m and the local k.
struct ForecastProblem {
  ForecastOp op = ForecastOp::kAllGatherMatmul;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType dtype = DType::kBF16;           ///< of the factors; results of f8 are bf16
  ScaleMode scales = ScaleMode::kNone;  ///< of f8 factors: kTensorwise, kRowwiseSharded, kBlockwiseSharded
  bool fast_accum = false;              ///< of scaled products: see gemm::ScaledMmArgs
  int world = 2;
  bool is_recorded = false;          ///< the op is captured in a graph
  std::chrono::nanoseconds link{0};  ///< that each copy from a peer takes beside its bytes
};

/// What the models say of an op.
/// Units:   us.
struct Forecast {
  double product_us = 0;     ///< the product alone, as one product by the vendor's library
  double collective_us = 0;  ///< the collective alone
  /// Every algorithm: its time, or why it cannot run.
  std::vector<Candidate> candidates;
  Algorithm algorithm = Algorithm::kSerial;  ///< that `auto` takes
  std::string reason;                        ///< why

  /// The time of an algorithm; null if it cannot run.
  [[nodiscard]] const double* us_of(Algorithm of) const;
};

/// What `auto` takes across hosts, where it looks at no times.
/// has_native:  the op can run by kNative there.
[[nodiscard]] Algorithm algorithm_across_hosts(bool has_native);

/// Foretells times on one machine, by the same models and rules as `auto`. Copies share what they remember.
/// One thread uses them.
class Forecaster {
 public:
  /// Errors:  kInvalidArgument for a machine that lacks a rate.
  [[nodiscard]] static Result<Forecaster> make(const cost::Machine& machine);
  /// The same with other rates, but for the number of multiprocessors, which stays.
  /// Errors:  as make().
  [[nodiscard]] Result<Forecaster> with_rates(const cost::Machine& machine) const;

  /// Errors:  kInvalidArgument for sizes below 1 or above 2^24, and a world that is not from 2 to 1024;
  ///          kUnsupported for types that no model covers, with a remedy.
  [[nodiscard]] Result<Forecast> forecast(const ForecastProblem& problem) const;

 private:
  struct Impl;
  explicit Forecaster(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace tandem
