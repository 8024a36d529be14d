#include <tandem/device/device.hpp>

#include "base/byte_size.hpp"
#include "base/format.hpp"
#include "base/overlap.hpp"
#include "base/try.hpp"
#include "device/check_view.hpp"

namespace tandem {
namespace {

Result<void> check_host_copy(std::string_view op, const TensorView& view, const void* host,
                             const Device& device) {
  TANDEM_TRY(check_view(op, "the tensor", view, device));
  if (!view.is_contiguous()) {
    return failf(ErrorCode::kInvalidArgument, "{}: the tensor is {}, need a contiguous one", op,
                 to_string(view));
  }
  if (host == nullptr && view.numel() > 0) {
    return failf(ErrorCode::kInvalidArgument, "{}: the host pointer is null, need {} bytes", op,
                 view.size_bytes());
  }
  return {};
}

/// The host's side of such a copy.
TensorView host_view(const void* host, const TensorView& like) {
  return TensorView::contiguous(const_cast<void*>(host), like.sizes, like.dtype);
}

}  // namespace

Result<void> check_view(std::string_view op, std::string_view name, const TensorView& view,
                        const Device& device) {
  if (view.strides.size() != view.sizes.size()) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} has {} sizes but {} strides", op, name,
                 view.sizes.size(), view.strides.size());
  }
  if (!byte_size(view.sizes, view.dtype, op))
    return tl::unexpected(byte_size(view.sizes, view.dtype, fmt::format("{}: {}", op, name)).error());
  if (!device.can_reach(view.device)) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} is on {}, which {} cannot reach", op, name,
                 to_string(view.device), to_string(device.id()));
  }
  if (view.data == nullptr && view.numel() > 0) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} {} has no memory", op, name, to_string(view));
  }
  return {};
}

Result<void> check_words(std::string_view op, std::string_view name, const TensorView& words) {
  if (words.dtype != DType::kU32 || words.dim() != 1 || !words.is_contiguous()) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} are {}, need u32, 1-D and contiguous", op, name,
                 to_string(words));
  }
  if (reinterpret_cast<std::uintptr_t>(words.data) % alignof(std::uint32_t) != 0) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} start at {}, need a multiple of 4", op, name,
                 words.data);
  }
  return {};
}

Result<Buffer> Device::allocate(std::int64_t num_bytes) {
  if (num_bytes < 0) {
    return failf(ErrorCode::kInvalidArgument, "allocate: {} bytes asked for, need at least 0", num_bytes);
  }
  return do_allocate(num_bytes);
}

Result<Tensor> Device::allocate_tensor(const Dims& sizes, DType dtype) {
  TANDEM_ASSIGN(const std::int64_t num_bytes, byte_size(sizes, dtype, "allocate_tensor"));
  TANDEM_ASSIGN(const Buffer buffer, allocate(num_bytes));
  TANDEM_TRY(do_zero(buffer.data(), num_bytes));
  return Tensor(TensorView::contiguous(buffer.data(), sizes, dtype, id_), buffer.owner());
}

Result<void> Device::copy_from_host(const void* from, const TensorView& to) {
  TANDEM_TRY(check_host_copy("copy_from_host", to, from, *this));
  const TensorView source = host_view(from, to);
  TANDEM_ASSIGN(const bool differs, check_copy("copy_from_host", {"from", -1, &source}, {"to", -1, &to}));
  if (!differs || to.numel() == 0) return {};
  return do_copy_from_host(from, to);
}

Result<void> Device::copy_to_host(const TensorView& from, void* to) {
  TANDEM_TRY(check_host_copy("copy_to_host", from, to, *this));
  const TensorView target = host_view(to, from);
  TANDEM_ASSIGN(const bool differs, check_copy("copy_to_host", {"from", -1, &from}, {"to", -1, &target}));
  if (!differs || from.numel() == 0) return {};
  return do_copy_to_host(from, to);
}

}  // namespace tandem
