#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/gemm/async_input_mm.hpp>
#include <tandem/gemm/mm.hpp>
#include <tandem/gemm/scaled_mm.hpp>

namespace tandem::gemm {

/// One way to compute a product. Lives as long as its Backend.
class Implementation {
 public:
  virtual ~Implementation() = default;
  /// "cpu/tile_avx512".
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Whether it can run the problem; if not, the reason goes to `why_not` unless that is null. Asked in every
  /// call of mm(), so the refusal itself must not allocate.
  [[nodiscard]] virtual bool accepts(const Problem& problem, std::string* why_not) const = 0;
  /// Enqueues. `args` are checked and of `problem`, which was accepted.
  [[nodiscard]] virtual Result<void> run(const Problem& problem, const MmArgs& args,
                                         Stream& stream) const = 0;
  /// Makes what run() would make at its first call: see gemm::prepare(). Pointers of `like` may be null. By
  /// default there is nothing.
  [[nodiscard]] virtual Result<void> prepare(const Problem& problem, const MmArgs& like,
                                             Stream& stream) const;
  /// accepts() and run() for scaled products; by default there are none.
  [[nodiscard]] virtual bool accepts_scaled(const ScaledProblem& problem, std::string* why_not) const;
  [[nodiscard]] virtual Result<void> run_scaled(const ScaledProblem& problem, const ScaledMmArgs& args,
                                                Stream& stream) const;
  /// The same for products whose left operand still arrives; run_async_input() has m > 0, and n > 0 unless
  /// there are patches.
  [[nodiscard]] virtual bool accepts_async_input(const AsyncInputProblem& problem,
                                                 std::string* why_not) const;
  [[nodiscard]] virtual Result<void> run_async_input(const AsyncInputProblem& problem,
                                                     const AsyncInputMmArgs& args, Stream& stream) const;
  /// See predict.hpp; of problems that were accepted. By default there is no model.
  [[nodiscard]] virtual std::optional<double> predicted_us(const Problem& problem) const;
  [[nodiscard]] virtual std::optional<double> predicted_async_input_us(const AsyncInputProblem& problem,
                                                                       std::int64_t complete_chunks) const;
};

/// For an implementation that has one way only to run a problem.
[[nodiscard]] bool has_heuristic(const Problem& problem, std::string* why_not);

/// The products of one kind of device, a service of Device.
class Backend {
 public:
  virtual ~Backend() = default;
  /// Best first, reference last. The first that accepts a problem runs it.
  [[nodiscard]] virtual std::span<const Implementation* const> implementations() const = 0;
};

}  // namespace tandem::gemm
