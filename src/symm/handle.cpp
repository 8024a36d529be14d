#include <algorithm>
#include <tandem/symm/handle.hpp>

#include "base/byte_size.hpp"
#include "base/format.hpp"
#include "base/overlap.hpp"
#include "base/try.hpp"

namespace tandem::symm {
namespace {

Result<void> check_rank(const Handle& handle, int rank, const char* who) {
  if (rank >= 0 && rank < handle.world_size()) return {};
  return failf(ErrorCode::kInvalidArgument, "{}: rank {}, need 0 to {}", who, rank, handle.world_size() - 1);
}

Result<void> check_signal(const Handle& handle, int channel, const Timeout& timeout, const char* who) {
  if (channel < 0 || channel >= handle.num_channels()) {
    return failf(ErrorCode::kInvalidArgument, "{}: channel {}, need 0 to {} (a pad of {} bytes for {} ranks)",
                 who, channel, handle.num_channels() - 1, handle.signal_pad_size_bytes(),
                 handle.world_size());
  }
  if (timeout && *timeout <= std::chrono::milliseconds(0)) {
    return failf(ErrorCode::kInvalidArgument, "{}: timeout of {} ms, need more than 0", who,
                 timeout->count());
  }
  return {};
}

struct Window {
  const char* who;
  void* base;
  std::int64_t available_bytes;
  const Dims& sizes;
  DType dtype;
  std::int64_t offset_bytes;    // from base to element 0 of the window's own count
  std::int64_t storage_offset;  // elements
};

// A contiguous view inside [base, base + available_bytes), in 64 bits and without overflow.
Result<TensorView> view_in(const Window& window, DeviceId device) {
  TANDEM_ASSIGN(const std::int64_t num_bytes, byte_size(window.sizes, window.dtype, window.who));
  const std::int64_t element_bytes = size_bytes(window.dtype);
  if (window.storage_offset < 0) {
    return failf(ErrorCode::kInvalidArgument, "{}: negative offset {}", window.who, window.storage_offset);
  }
  if (window.offset_bytes % element_bytes != 0) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: the handle's offset of {} bytes is no multiple of the {} bytes of {}", window.who,
                 window.offset_bytes, element_bytes, to_string(window.dtype));
  }
  std::int64_t begin = 0;
  std::int64_t end = 0;
  const bool overflow = __builtin_mul_overflow(window.storage_offset, element_bytes, &begin) ||
                        __builtin_add_overflow(begin, window.offset_bytes, &begin) ||
                        __builtin_add_overflow(begin, num_bytes, &end);
  if (overflow || end > window.available_bytes) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: {} {} at element {} (byte {}): {} bytes requested, {} available", window.who,
                 to_string(window.dtype), to_string(window.sizes), window.storage_offset, window.offset_bytes,
                 overflow ? "more than 2^63" : fmt::format("{}", end), window.available_bytes);
  }
  return TensorView::contiguous(static_cast<std::byte*>(window.base) + begin, window.sizes, window.dtype,
                                device);
}

/// This rank's side of a copy.
struct Local {
  const char* who;
  const char* name;
  const TensorView& view;
};

/// What lies on `peer` where the local side of a copy goes to or comes from.
Result<TensorView> opposite_of(const Handle& handle, const Local& local, int peer, std::int64_t offset) {
  const TensorView& view = local.view;
  TANDEM_TRY(check_rank(handle, peer, local.who));
  if (!(view.device == handle.device().id())) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} on {}, the handle is on {}", local.who, local.name,
                 to_string(view.device), to_string(handle.device().id()));
  }
  if (!view.is_contiguous()) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} {} is not contiguous", local.who, local.name,
                 to_string(view));
  }
  return view_in({local.who, handle.buffer_ptrs()[static_cast<std::size_t>(peer)], handle.buffer_size_bytes(),
                  view.sizes, view.dtype, handle.offset_bytes(), offset},
                 handle.device().id());
}

}  // namespace

int Handle::num_channels() const {
  return static_cast<int>(signal_pad_size_bytes() / (std::int64_t{4} * world_size()));
}

Result<TensorView> Handle::get_buffer(int rank, const Dims& sizes, DType dtype,
                                      std::int64_t storage_offset) const {
  TANDEM_TRY(check_process());
  TANDEM_TRY(check_rank(*this, rank, "get_buffer"));
  return view_in({"get_buffer", buffer_ptrs()[static_cast<std::size_t>(rank)], buffer_size_bytes(), sizes,
                  dtype, 0, storage_offset},
                 device().id());
}

Result<TensorView> Handle::get_signal_pad(int rank, const Dims& sizes, DType dtype,
                                          std::int64_t storage_offset) const {
  TANDEM_TRY(check_process());
  TANDEM_TRY(check_rank(*this, rank, "get_signal_pad"));
  const std::int64_t element_bytes = size_bytes(dtype);
  Dims shape = sizes;
  if (shape.empty() && element_bytes > 0) {
    shape = {std::max<std::int64_t>(
        0, signal_pad_size_bytes() / element_bytes - std::max<std::int64_t>(0, storage_offset))};
  }
  return view_in({"get_signal_pad", signal_pad_ptrs()[static_cast<std::size_t>(rank)],
                  signal_pad_size_bytes(), shape, dtype, 0, storage_offset},
                 device().id());
}

Result<TensorView> Handle::get_remote_tensor(int peer, const Dims& sizes, DType dtype) const {
  TANDEM_TRY(check_process());
  TANDEM_TRY(check_rank(*this, peer, "get_remote_tensor"));
  return view_in({"get_remote_tensor", buffer_ptrs()[static_cast<std::size_t>(peer)], buffer_size_bytes(),
                  sizes, dtype, offset_bytes(), 0},
                 device().id());
}

Result<void> Handle::put_signal(Stream& stream, int dst_rank, int channel, Timeout timeout) {
  TANDEM_TRY(check_rank(*this, dst_rank, "put_signal"));
  TANDEM_TRY(check_signal(*this, channel, timeout, "put_signal"));
  TANDEM_TRY(check_usable(stream));
  return do_put_signal(stream, dst_rank, channel, timeout);
}

Result<void> Handle::wait_signal(Stream& stream, int src_rank, int channel, Timeout timeout) {
  TANDEM_TRY(check_rank(*this, src_rank, "wait_signal"));
  TANDEM_TRY(check_signal(*this, channel, timeout, "wait_signal"));
  TANDEM_TRY(check_usable(stream));
  return do_wait_signal(stream, src_rank, channel, timeout);
}

Result<void> Handle::barrier(Stream& stream, int channel, Timeout timeout) {
  TANDEM_TRY(check_signal(*this, channel, timeout, "barrier"));
  TANDEM_TRY(check_usable(stream));
  return do_barrier(stream, channel, timeout);
}

Result<void> Handle::get(Stream& stream, const TensorView& to, int peer, std::int64_t offset) {
  TANDEM_ASSIGN(const TensorView from, opposite_of(*this, {"get", "destination", to}, peer, offset));
  TANDEM_ASSIGN(const bool differs,
                check_copy("get", {"the peer's memory", -1, &from}, {"destination", -1, &to}));
  TANDEM_TRY(check_usable(stream));
  if (!differs) return {};
  return do_get(stream, from, to, peer);
}

Result<void> Handle::put(Stream& stream, const TensorView& from, int peer, std::int64_t offset) {
  TANDEM_ASSIGN(const TensorView to, opposite_of(*this, {"put", "source", from}, peer, offset));
  TANDEM_ASSIGN(const bool differs, check_copy("put", {"source", -1, &from}, {"the peer's memory", -1, &to}));
  TANDEM_TRY(check_usable(stream));
  if (!differs) return {};
  return do_put(stream, from, to, peer);
}

Result<void> Handle::watch(Stream& stream) const {
  TANDEM_TRY(check_usable(stream));
  return do_watch(stream);
}

Result<void> Handle::do_watch(Stream& /*stream*/) const {
  return {};
}

}  // namespace tandem::symm
