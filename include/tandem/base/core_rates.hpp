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

/// The speeds of one core from which `auto` predicts on CPUs. kMm... are products of large matrices of a
/// type, kMmScaled those of f8 with scales. kPack... pack their right operands. kSum... add partials of a
/// type.
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

/// The rate of products with factors of this type.
[[nodiscard]] CoreRate mm_rate_of(DType dtype);
/// The rate of packing right operands of this type.
[[nodiscard]] CoreRate pack_rate_of(DType dtype);
/// The rate of sums of such partials.
[[nodiscard]] CoreRate sum_rate_of(DType partials);

/// "mm_bf16", "pack_bf16", "copy", "sum_bf16" and so on.
[[nodiscard]] std::string_view to_string(CoreRate rate);
/// The inverse of to_string(); nothing for an unknown name.
[[nodiscard]] std::optional<CoreRate> parse_core_rate(std::string_view name);

/// A speed for each CoreRate, or 0 where it is not known.
/// Units:   per microsecond: flops (mm), elements of the right operand (pack), bytes (copy), bytes of all
///          partials (sum).
class CoreRates {
 public:
  [[nodiscard]] double operator[](CoreRate rate) const { return per_us_[static_cast<std::size_t>(rate)]; }
  [[nodiscard]] bool knows(CoreRate rate) const { return (*this)[rate] > 0; }
  void set(CoreRate rate, double per_us) { per_us_[static_cast<std::size_t>(rate)] = per_us; }
  /// Takes the speeds that are not known here from `other`.
  void fill_from(const CoreRates& other);
  friend bool operator==(const CoreRates&, const CoreRates&) = default;

 private:
  std::array<double, kNumCoreRates> per_us_{};
};

/// The smallest and the largest speed that a file or a variable may give.
/// Units:   GFLOP/s, 10^9 elements a second, GB/s.
inline constexpr double kLeastCoreRate = 1e-3;
inline constexpr double kMostCoreRate = 1e6;

/// Reads names with speeds in the units of files: "mm=190,mm_f32=95,pack=2.5,copy=6,sum=3". `mm`, `pack` and
/// `sum` set the speeds of all types. A later piece replaces an earlier one.
/// Errors:  kInvalidArgument with the piece that is wrong and what is allowed.
[[nodiscard]] Result<CoreRates> parse_core_rates(std::string_view text);
/// The known speeds in that form, each under its own name. It is empty if none is known.
[[nodiscard]] std::string to_string(const CoreRates& rates);

}  // namespace tandem
