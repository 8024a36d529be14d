#include <charconv>
#include <cmath>
#include <tandem/base/core_rates.hpp>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem {
namespace {

constexpr std::string_view kNames[kNumCoreRates] = {"mm_f32",   "mm_bf16",   "mm_f16",   "mm_scaled",
                                                    "pack_f32", "pack_bf16", "pack_f16", "pack_scaled",
                                                    "copy",     "sum_f32",   "sum_bf16", "sum_f16"};
/// Of what a file says, in what the model counts: G a second are so many a microsecond.
constexpr double kPerUs = 1e3;

CoreRate rate_at(std::size_t idx) {
  return static_cast<CoreRate>(idx);
}

/// 0 f32, 1 bf16, 2 f16, 3 all narrower ones.
std::size_t column_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0;
    case DType::kBF16:
      return 1;
    case DType::kF16:
      return 2;
    default:
      return 3;
  }
}

CoreRate in_row(CoreRate first, std::size_t column) {
  return rate_at(static_cast<std::size_t>(first) + column);
}

tl::unexpected<Error> refuse(std::string_view piece) {
  return failf(ErrorCode::kInvalidArgument,
               "'{}': need name=speed, with a speed from {} to {} and a name out of mm, pack, sum, {}", piece,
               kLeastCoreRate, kMostCoreRate, fmt::join(kNames, ", "));
}

Result<void> set_named(CoreRates& rates, std::string_view piece) {
  const auto equals = piece.find('=');
  if (equals == std::string_view::npos) return refuse(piece);
  const std::string_view name = piece.substr(0, equals);
  const std::string_view digits = piece.substr(equals + 1);
  double speed = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), speed);
  // NaN is neither.
  if (error != std::errc() || end != digits.data() + digits.size() ||
      !(speed >= kLeastCoreRate && speed <= kMostCoreRate)) {
    return refuse(piece);
  }
  bool is_known = false;
  for (std::size_t i = 0; i < kNumCoreRates; ++i) {
    const bool is_of_all_types = kNames[i].substr(0, kNames[i].find('_')) == name;
    if (kNames[i] != name && !is_of_all_types) continue;
    rates.set(rate_at(i), speed * kPerUs);
    is_known = true;
  }
  if (!is_known) return refuse(piece);
  return {};
}

}  // namespace

CoreRate mm_rate_of(DType dtype) {
  return in_row(CoreRate::kMmF32, column_of(dtype));
}

CoreRate pack_rate_of(DType dtype) {
  return in_row(CoreRate::kPackF32, column_of(dtype));
}

CoreRate sum_rate_of(DType partials) {
  const std::size_t column = column_of(partials);
  return in_row(CoreRate::kSumF32, column == 3 ? 0 : column);
}

std::string_view to_string(CoreRate rate) {
  return kNames[static_cast<std::size_t>(rate)];
}

std::optional<CoreRate> parse_core_rate(std::string_view name) {
  for (std::size_t i = 0; i < kNumCoreRates; ++i) {
    if (kNames[i] == name) return rate_at(i);
  }
  return std::nullopt;
}

void CoreRates::fill_from(const CoreRates& other) {
  for (std::size_t i = 0; i < kNumCoreRates; ++i) {
    if (!knows(rate_at(i))) per_us_[i] = other.per_us_[i];
  }
}

Result<CoreRates> parse_core_rates(std::string_view text) {
  CoreRates rates;
  while (true) {
    const auto comma = text.find(',');
    TANDEM_TRY(set_named(rates, text.substr(0, comma)));
    if (comma == std::string_view::npos) return rates;
    text.remove_prefix(comma + 1);
  }
}

std::string to_string(const CoreRates& rates) {
  std::string text;
  for (std::size_t i = 0; i < kNumCoreRates; ++i) {
    if (!rates.knows(rate_at(i))) continue;
    text += fmt::format("{}{}={:.4g}", text.empty() ? "" : ",", kNames[i], rates[rate_at(i)] / kPerUs);
  }
  return text;
}

}  // namespace tandem
