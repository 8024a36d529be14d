#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tandem/base/dtype.hpp>
#include <tandem/base/error.hpp>

namespace tandem {

/// Speeds of one core that the model behind `auto` knows on CPUs, by what is done: products of large matrices
/// of a type (f8 with scales: kMmScaled), packing the right operand for them, copies, and sums of partials of
/// a type.
enum class CoreRate : std::uint8_t {
  kMmF32,
  kMmBF16,
  kMmF16,
  kMmScaled,
  kPackF32,
  kPackBF16,
  kPackF16,
  kPackScaled,
  kCopy,
  kSumF32,
  kSumBF16,
  kSumF16
};
inline constexpr std::size_t kNumCoreRates = 12;

/// Of products with factors of this type, of packing for them, and of sums of such partials.
[[nodiscard]] CoreRate mm_rate_of(DType dtype);
[[nodiscard]] CoreRate pack_rate_of(DType dtype);
[[nodiscard]] CoreRate sum_rate_of(DType partials);

/// "mm_bf16", "pack_bf16", "copy", "sum_bf16".
[[nodiscard]] std::string_view to_string(CoreRate rate);
[[nodiscard]] std::optional<CoreRate> parse_core_rate(std::string_view name);

/// Units: flops, elements of the right operand, bytes, bytes of all partials, each per microsecond. 0: not
/// known.
class CoreRates {
 public:
  [[nodiscard]] double operator[](CoreRate rate) const { return per_us_[static_cast<std::size_t>(rate)]; }
  [[nodiscard]] bool knows(CoreRate rate) const { return (*this)[rate] > 0; }
  void set(CoreRate rate, double per_us) { per_us_[static_cast<std::size_t>(rate)] = per_us; }
  /// Takes from `other` what is not known here.
  void fill_from(const CoreRates& other);
  friend bool operator==(const CoreRates&, const CoreRates&) = default;

 private:
  std::array<double, kNumCoreRates> per_us_{};
};

/// What a file or a variable may say: GFLOP/s, 10^9 elements a second, GB/s. A speed below the first or above
/// the second is no measurement.
inline constexpr double kLeastCoreRate = 1e-3;
inline constexpr double kMostCoreRate = 1e6;

/// "mm=190,mm_f32=95,pack=2.5,copy=6,sum=3": names with their speeds in the units of files. `mm`, `pack` and
/// `sum` are those of all types; what comes later counts.
/// Errors: kInvalidArgument with the piece that is wrong and what is allowed.
[[nodiscard]] Result<CoreRates> parse_core_rates(std::string_view text);
/// The same text for what is known, every name by itself; empty for nothing.
[[nodiscard]] std::string to_string(const CoreRates& rates);

}  // namespace tandem
