#include "fused/call/checks.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/check_view.hpp"

namespace tandem::fused {
namespace {

bool has_strides(const TensorView& view, const Dims& strides) {
  if (view.numel() == 0) return true;
  for (int d = 0; d < view.dim(); ++d) {
    if (view.size(d) != 1 && view.stride(d) != strides[d]) return false;
  }
  return true;
}

}  // namespace

Result<void> check_planned(std::string_view who, std::string_view name, std::int64_t size) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (size >= 0 && size <= kMost) return {};
  return failf(ErrorCode::kInvalidArgument, "{}: {} is {}, need 0 to {}", who, name, size, kMost);
}

bool is_representable(const Dims& sizes, DType dtype) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;
  std::int64_t num_bytes = size_bytes(dtype);
  for (const std::int64_t size : sizes) {
    if (size < 0) return false;
    if (__builtin_mul_overflow(num_bytes, std::max<std::int64_t>(size, 1), &num_bytes)) return false;
    if (num_bytes > kMostBytes) return false;
  }
  return true;
}

Result<void> check_operand(std::string_view who, const Named& named, DType dtype, const Device& device) {
  const TensorView& view = *named.view;
  if (view.dtype != DType::kF32 && view.dtype != DType::kBF16 && view.dtype != DType::kF16) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} is {}, need f32, bf16 or f16", who, to_string(named),
                 to_string(view.dtype));
  }
  if (view.dtype != dtype) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} is {}, need {} as a", who, to_string(named),
                 to_string(view.dtype), to_string(dtype));
  }
  return check_tensor(who, named, device);
}

Result<void> check_tensor(std::string_view who, const Named& named, const Device& device) {
  const TensorView& view = *named.view;
  if (!is_representable(view.sizes, view.dtype)) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} has sizes {}, need none below 0 and at most 2^62 bytes",
                 who, to_string(named), to_string(view.sizes));
  }
  TANDEM_TRY(check_view(who, to_string(named), view, device));
  for (const std::int64_t stride : view.strides) {
    if (stride < 0) {
      return failf(ErrorCode::kInvalidArgument, "{}: {} has strides {}, need none below 0", who,
                   to_string(named), to_string(view.strides));
    }
  }
  return {};
}

Result<void> check_layout(std::string_view who, const Named& named, const Layout& need, DType dtype,
                          const Device& device) {
  TANDEM_TRY(check_operand(who, named, dtype, device));
  return check_has_layout(who, named, need);
}

Result<void> check_has_layout(std::string_view who, const Named& named, const Layout& need) {
  const TensorView& view = *named.view;
  if (!(view.sizes == need.sizes)) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} has sizes {}, need {}", who, to_string(named),
                 to_string(view.sizes), to_string(need.sizes));
  }
  if (!has_strides(view, need.strides)) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} of sizes {} has strides {}, need {}", who,
                 to_string(named), to_string(view.sizes), to_string(view.strides), to_string(need.strides));
  }
  return {};
}

Layout front_major_layout(const Dims& sizes, int dim) {
  Layout layout{sizes, contiguous_strides(sizes)};
  if (dim == sizes.size() - 1) return layout;
  Dims moved = sizes;
  moved.insert(0, moved.erase(dim));
  layout.strides = contiguous_strides(moved);
  layout.strides.insert(dim, layout.strides.erase(0));
  return layout;
}

}  // namespace tandem::fused
