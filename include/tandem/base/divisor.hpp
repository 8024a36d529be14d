#pragma once

#include <cstdint>

namespace tandem {

/// A number by which many others are divided. Each division is a multiplication and a shift, in place of
/// about twenty dependent instructions on a GPU. It works on hosts, and in kernels compiled with
/// --expt-relaxed-constexpr.
class Divisor {
 public:
  /// 1.
  constexpr Divisor() : Divisor(1) {}
  /// It needs divisor >= 1.
  constexpr explicit Divisor(int divisor) : divisor_(divisor) {
    int bits = 0;
    while ((std::int64_t{1} << bits) < divisor) ++bits;
    // Rounded up, it is less than 2^bits / divisor too large: not enough for a dividend below 2^31 to reach
    // the next quotient (Granlund and Montgomery, Division by invariant integers, 1994).
    shift_ = kDividendBits + bits;
    const auto by = static_cast<std::uint64_t>(divisor);
    multiplier_ = static_cast<std::uint32_t>(((std::uint64_t{1} << shift_) + by - 1) / by);
  }

  [[nodiscard]] constexpr int value() const { return divisor_; }

  /// The quotient, rounded down. It needs dividend >= 0.
  friend constexpr int operator/(int dividend, const Divisor& by) {
    return static_cast<int>((std::uint64_t{static_cast<std::uint32_t>(dividend)} * by.multiplier_) >>
                            by.shift_);
  }
  friend constexpr int operator%(int dividend, const Divisor& by) {
    return dividend - dividend / by * by.divisor_;
  }
  // Only int: what is wider, or unsigned, would be cut off silently.
  template <class Dividend>
  friend constexpr int operator/(Dividend, const Divisor&) = delete;
  template <class Dividend>
  friend constexpr int operator%(Dividend, const Divisor&) = delete;
  /// Returns `a` if `first`, else `b`. It selects field by field, so that kernels keep them in registers.
  [[nodiscard]] static constexpr Divisor pick(bool first, const Divisor& a, const Divisor& b) {
    Divisor picked;
    picked.divisor_ = first ? a.divisor_ : b.divisor_;
    picked.shift_ = first ? a.shift_ : b.shift_;
    picked.multiplier_ = first ? a.multiplier_ : b.multiplier_;
    return picked;
  }

 private:
  static constexpr int kDividendBits = 31;

  int divisor_ = 1;
  int shift_ = kDividendBits;
  std::uint32_t multiplier_ = 0;
};

}  // namespace tandem
