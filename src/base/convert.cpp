#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <tandem/base/convert.hpp>
#include <tandem/base/numeric.hpp>

#include "base/format.hpp"

namespace tandem {
namespace {

struct Bool {
  std::uint8_t bits;
};

/// Calls `use` with a value of the C++ type that stands for `dtype`.
template <class Use>
void with_type(DType dtype, Use&& use) {
  switch (dtype) {
    case DType::kF32:
      return use(float{});
    case DType::kF16:
      return use(F16{});
    case DType::kBF16:
      return use(BF16{});
    case DType::kF8E4M3:
      return use(F8E4M3{});
    case DType::kF8E5M2:
      return use(F8E5M2{});
    case DType::kU8:
      return use(std::uint8_t{});
    case DType::kU32:
      return use(std::uint32_t{});
    case DType::kI8:
      return use(std::int8_t{});
    case DType::kI32:
      return use(std::int32_t{});
    case DType::kI64:
      return use(std::int64_t{});
    case DType::kF64:
      return use(double{});
    case DType::kBool:
      return use(Bool{});
  }
}

template <class T>
constexpr bool kIsSmallFloat = std::is_same_v<T, F16> || std::is_same_v<T, BF16> || std::is_same_v<T, F8E4M3> ||
                               std::is_same_v<T, F8E5M2>;

template <class T>
double widen(T value) {
  if constexpr (std::is_same_v<T, Bool>) {
    return value.bits != 0 ? 1.0 : 0.0;
  } else if constexpr (kIsSmallFloat<T>) {
    return static_cast<double>(to_f32(value));
  } else {
    return static_cast<double>(value);
  }
}

// f64 -> f32 so that a later rounding to fewer bits is still the nearest: round to odd keeps the sticky bit.
float to_f32_round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (!std::isfinite(value) || !std::isfinite(nearest) || static_cast<double>(nearest) == value) return nearest;
  const float inward = std::abs(static_cast<double>(nearest)) > std::abs(value) ? std::nextafter(nearest, 0.0F) : nearest;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(inward) | 1U);
}

template <class T>
T narrow(double value) {
  if constexpr (std::is_same_v<T, Bool>) {
    return {static_cast<std::uint8_t>(value != 0.0)};
  } else if constexpr (std::is_same_v<T, F16>) {
    return to_f16(to_f32_round_to_odd(value));
  } else if constexpr (std::is_same_v<T, BF16>) {
    return to_bf16(to_f32_round_to_odd(value));
  } else if constexpr (std::is_same_v<T, F8E4M3>) {
    return to_f8e4m3(to_f32_round_to_odd(value));
  } else if constexpr (std::is_same_v<T, F8E5M2>) {
    return to_f8e5m2(to_f32_round_to_odd(value));
  } else if constexpr (std::is_integral_v<T>) {
    if (std::isnan(value)) return 0;
    // max() of a 64-bit type is not a double: compare with the next power of two instead.
    const double limit = std::ldexp(1.0, std::numeric_limits<T>::digits);
    if (value >= limit) return std::numeric_limits<T>::max();
    if (value <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
    return static_cast<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

// Runs `use(from offset, to offset)` over all elements, in elements, innermost dim in a plain loop.
template <class Use>
void for_each_pair(const TensorView& from, const TensorView& to, Use&& use) {
  const int last = from.dim() - 1;
  if (last < 0) return use(std::int64_t{0}, std::int64_t{0}, std::int64_t{1}, std::int64_t{1}, std::int64_t{1});
  Dims idx;
  for (int d = 0; d < last; ++d) idx.push_back(0);
  std::int64_t from_offset = 0;
  std::int64_t to_offset = 0;
  for (;;) {
    use(from_offset, to_offset, from.size(last), from.stride(last), to.stride(last));
    int d = last - 1;
    for (; d >= 0; --d) {
      from_offset += from.stride(d);
      to_offset += to.stride(d);
      if (++idx[d] < from.size(d)) break;
      from_offset -= from.stride(d) * from.size(d);
      to_offset -= to.stride(d) * to.size(d);
      idx[d] = 0;
    }
    if (d < 0) return;
  }
}

}  // namespace

Result<void> convert(const TensorView& from, const TensorView& to) {
  if (!(from.sizes == to.sizes)) {
    return failf(ErrorCode::kInvalidArgument, "convert: sizes differ: from {}, to {}", to_string(from.sizes),
                 to_string(to.sizes));
  }
  if (from.device.kind != DeviceKind::kCpu || to.device.kind != DeviceKind::kCpu) {
    return failf(ErrorCode::kInvalidArgument, "convert: needs host memory, got {} and {}", to_string(from.device),
                 to_string(to.device));
  }
  if (from.numel() == 0) return {};
  with_type(from.dtype, [&](auto from_type) {
    with_type(to.dtype, [&](auto to_type) {
      using From = decltype(from_type);
      using To = decltype(to_type);
      const From* source = from.data_as<const From>();
      To* target = to.data_as<To>();
      for_each_pair(from, to, [&](std::int64_t from_offset, std::int64_t to_offset, std::int64_t count,
                                  std::int64_t from_stride, std::int64_t to_stride) {
        for (std::int64_t i = 0; i < count; ++i) {
          const From value = source[from_offset + i * from_stride];
          To& result = target[to_offset + i * to_stride];
          if constexpr (std::is_same_v<From, To>) {
            result = value;
          } else if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
            // Through f64 a 64-bit integer would lose bits.
            result = std::in_range<To>(value) ? static_cast<To>(value)
                     : value < 0              ? std::numeric_limits<To>::min()
                                              : std::numeric_limits<To>::max();
          } else {
            result = narrow<To>(widen(value));
          }
        }
      });
    });
  });
  return {};
}

double element_as_f64(const TensorView& view, std::int64_t idx) {
  std::int64_t offset = 0;
  for (int d = view.dim() - 1; d >= 0; --d) {
    offset += idx % view.size(d) * view.stride(d);
    idx /= view.size(d);
  }
  double value = 0;
  with_type(view.dtype, [&](auto type) { value = widen(view.data_as<const decltype(type)>()[offset]); });
  return value;
}

}  // namespace tandem
