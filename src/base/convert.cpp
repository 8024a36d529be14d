#include <bit>
#include <cmath>
#include <limits>
#include <tandem/base/convert.hpp>
#include <tandem/base/numeric.hpp>
#include <type_traits>
#include <utility>

#include "base/byte_size.hpp"
#include "base/convert_elements.hpp"
#include "base/format.hpp"
#include "base/overlap.hpp"
#include "base/try.hpp"

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
constexpr bool kIsSmallFloat = std::is_same_v<T, F16> || std::is_same_v<T, BF16> ||
                               std::is_same_v<T, F8E4M3> || std::is_same_v<T, F8E5M2>;

template <class T>
constexpr bool kFitsF32 = kIsSmallFloat<T> || std::is_same_v<T, float>;

// "Round to odd" drops bits but leaves the last one set if any that was dropped was: a later rounding to at
// least two bits fewer is then as if done in one step.

double to_f64_round_to_odd(std::int64_t value) {
  constexpr std::int64_t kDropped = (1 << 11) - 1;
  if (value >= -(1LL << 53) && value <= (1LL << 53)) return static_cast<double>(value);
  return static_cast<double>((value & ~kDropped) | ((value & kDropped) != 0 ? kDropped + 1 : 0));
}

float to_f32_round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (!std::isfinite(value) || !std::isfinite(nearest) || static_cast<double>(nearest) == value)
    return nearest;
  const bool is_outward = std::abs(static_cast<double>(nearest)) > std::abs(value);
  const float inward = is_outward ? std::nextafter(nearest, 0.0F) : nearest;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(inward) | 1U);
}

/// `value` as Via (f32 or f64); exact but for 64-bit integers, which are rounded to odd.
template <class Via, class T>
Via widen(T value) {
  if constexpr (std::is_same_v<T, Bool>) {
    return value.bits != 0 ? Via{1} : Via{0};
  } else if constexpr (kIsSmallFloat<T>) {
    return static_cast<Via>(to_f32(value));
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return to_f64_round_to_odd(value);
  } else {
    return static_cast<Via>(value);
  }
}

template <class T>
T narrow_small(float value) {
  if constexpr (std::is_same_v<T, F16>) return to_f16(value);
  if constexpr (std::is_same_v<T, BF16>) return to_bf16(value);
  if constexpr (std::is_same_v<T, F8E4M3>) return to_f8e4m3(value);
  if constexpr (std::is_same_v<T, F8E5M2>) return to_f8e5m2(value);
}

template <class T, class Via>
T narrow(Via value) {
  if constexpr (std::is_same_v<T, Bool>) {
    return {static_cast<std::uint8_t>(value != Via{0})};
  } else if constexpr (kIsSmallFloat<T>) {
    if constexpr (std::is_same_v<Via, float>) return narrow_small<T>(value);
    return narrow_small<T>(to_f32_round_to_odd(value));
  } else if constexpr (std::is_integral_v<T>) {
    if (std::isnan(value)) return 0;
    // max() of a 64-bit type is not a double: compare with the next power of two instead.
    constexpr double kLimit =
        2.0 * static_cast<double>(std::uint64_t{1} << (std::numeric_limits<T>::digits - 1));
    if (value >= kLimit) return std::numeric_limits<T>::max();
    if (value <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
    return static_cast<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

template <class To, class From>
To convert_element(From value) {
  if constexpr (std::is_same_v<From, To>) {
    return value;
  } else if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
    // Through f64 a 64-bit integer would lose bits.
    if (std::in_range<To>(value)) return static_cast<To>(value);
    return value < 0 ? std::numeric_limits<To>::min() : std::numeric_limits<To>::max();
  } else if constexpr (std::is_same_v<From, std::int64_t> && std::is_same_v<To, double>) {
    return static_cast<double>(value);
  } else {
    using Via = std::conditional_t<kFitsF32<From> && kFitsF32<To>, float, double>;
    return narrow<To>(widen<Via>(value));
  }
}

template <class From, class To>
void convert_row(const From* source, std::int64_t source_stride, To* target, std::int64_t target_stride,
                 std::int64_t count) {
  if (source_stride == 1 && target_stride == 1) {  // a loop of its own, for the vectoriser
    for (std::int64_t i = 0; i < count; ++i) target[i] = convert_element<To>(source[i]);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    target[i * target_stride] = convert_element<To>(source[i * source_stride]);
  }
}

// Runs `use(from offset, to offset)`, in elements, for the start of every innermost row.
template <class Use>
void for_each_row(const TensorView& from, const TensorView& to, Use&& use) {
  Dims idx = from.sizes;
  for (int d = 0; d < idx.size(); ++d) idx[d] = 0;
  std::int64_t from_offset = 0;
  std::int64_t to_offset = 0;
  for (;;) {
    use(from_offset, to_offset);
    int d = from.dim() - 2;
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

TensorView as_one_row(const TensorView& view) {
  return TensorView::contiguous(view.data, {view.numel()}, view.dtype, view.device);
}

void convert_rows(const TensorView& from, const TensorView& to) {
  const int last = from.dim() - 1;
  with_type(from.dtype, [&](auto from_type) {
    with_type(to.dtype, [&](auto to_type) {
      const auto* source = from.data_as<const decltype(from_type)>();
      auto* target = to.data_as<decltype(to_type)>();
      for_each_row(from, to, [&](std::int64_t from_offset, std::int64_t to_offset) {
        convert_row(source + from_offset, from.stride(last), target + to_offset, to.stride(last),
                    from.size(last));
      });
    });
  });
}

}  // namespace

Result<void> convert(const TensorView& from, const TensorView& to) {
  if (!(from.sizes == to.sizes)) {
    return failf(ErrorCode::kInvalidArgument, "convert: sizes differ: from {}, to {}", to_string(from.sizes),
                 to_string(to.sizes));
  }
  TANDEM_TRY(byte_size(from.sizes, from.dtype, "convert: from"));
  TANDEM_TRY(byte_size(to.sizes, to.dtype, "convert: to"));
  if (from.device.kind != DeviceKind::kCpu || to.device.kind != DeviceKind::kCpu) {
    return failf(ErrorCode::kInvalidArgument, "convert: needs host memory, got {} and {}",
                 to_string(from.device), to_string(to.device));
  }
  TANDEM_ASSIGN(const bool differs, check_copy("convert", {"from", -1, &from}, {"to", -1, &to}));
  if (differs) convert_elements(from, to);
  return {};
}

void convert_elements(const TensorView& from, const TensorView& to) {
  if (from.numel() == 0) return;
  if (from.is_contiguous() && to.is_contiguous()) {
    convert_rows(as_one_row(from), as_one_row(to));
  } else {
    convert_rows(from, to);
  }
}

double element_as_f64(const TensorView& view, std::int64_t idx) {
  std::int64_t offset = 0;
  for (int d = view.dim() - 1; d >= 0; --d) {
    offset += idx % view.size(d) * view.stride(d);
    idx /= view.size(d);
  }
  double value = 0;
  with_type(view.dtype, [&](auto type) {
    value = convert_element<double>(view.data_as<const decltype(type)>()[offset]);
  });
  return value;
}

}  // namespace tandem
