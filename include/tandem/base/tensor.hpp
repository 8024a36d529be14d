#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tandem/base/dtype.hpp>
#include <tandem/base/shape.hpp>
#include <utility>

namespace tandem {

/// Which kind of memory a pointer belongs to.
enum class DeviceKind : std::uint8_t { kCpu, kCuda };

struct DeviceId {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  friend bool operator==(DeviceId x, DeviceId y) { return x.kind == y.kind && x.index == y.index; }
};

/// "cpu:0", "cuda:3".
[[nodiscard]] std::string to_string(DeviceId id);

/// A strided window on somebody else's memory: a value, free to copy. It does not keep the memory alive. An
/// op that was enqueued with it reads and writes the memory until a Stream::synchronize() behind it; what has
/// to be there until then, and what the library keeps, stands at Stream.
/// Units:   strides in elements.
/// Memory:  no call writes to a view whose elements share memory (stride 0, say), nor to one that shares a
///          byte with another argument, unless the call's own "Memory:" allows that. Only elements count, so
///          column blocks of one matrix are apart. An input may share memory with itself and other inputs.
/// Errors:  kInvalidArgument, before anything is enqueued, with both arguments and the bytes they reach over.
struct TensorView {
  void* data = nullptr;
  Dims sizes;
  Dims strides;
  DType dtype = DType::kF32;
  DeviceId device;
  /// Whether the memory must not be written. Every call refuses such a view as an output; views made from it
  /// have the mark too.
  bool is_read_only = false;

  /// Row-major view of `data`.
  [[nodiscard]] static TensorView contiguous(void* data, const Dims& sizes, DType dtype,
                                             DeviceId device = {});
  /// Row-major view of memory that must not be written: an input.
  [[nodiscard]] static TensorView read_only(const void* data, const Dims& sizes, DType dtype,
                                            DeviceId device = {});

  [[nodiscard]] int dim() const { return sizes.size(); }
  [[nodiscard]] std::int64_t size(int d) const { return sizes[d]; }
  [[nodiscard]] std::int64_t stride(int d) const { return strides[d]; }
  [[nodiscard]] std::int64_t numel() const { return tandem::numel(sizes); }
  /// Bytes of the elements, without holes.
  [[nodiscard]] std::int64_t size_bytes() const { return numel() * tandem::size_bytes(dtype); }
  /// Row-major without holes; dimensions of size 1 and empty tensors do not matter.
  [[nodiscard]] bool is_contiguous() const;
  template <class T>
  [[nodiscard]] T* data_as() const {
    return static_cast<T*>(data);
  }

  // Views on the same memory. Arguments out of range are a caller's bug (asserted).
  /// Dimension `from` moved to position `to`, the others in order.
  [[nodiscard]] TensorView movedim(int from, int to) const;
  /// Elements [start, start + length) of dimension d.
  [[nodiscard]] TensorView narrow(int d, std::int64_t start, std::int64_t length) const;
  /// Dimension d fixed at idx and dropped.
  [[nodiscard]] TensorView select(int d, std::int64_t idx) const;
  /// Whether flatten_rows() is possible without a copy.
  [[nodiscard]] bool can_flatten_rows() const;
  /// All dimensions but the last merged into one: [rows, last]. Needs can_flatten_rows().
  [[nodiscard]] TensorView flatten_rows() const;
};

/// "f32 [8, 64] strides [64, 1] on cpu:0".
[[nodiscard]] std::string to_string(const TensorView& view);

/// Owns memory together with its shape. Move-only; view() is how it is passed on.
class Tensor {
 public:
  Tensor() = default;
  /// `owner` is released when the tensor goes; its deleter must not throw.
  Tensor(TensorView view, std::shared_ptr<void> owner) : view_(view), owner_(std::move(owner)) {}
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(Tensor&&) noexcept = default;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  /// Zeroed, contiguous, 64-byte aligned host memory of no device: freed with the tensor, though work that
  /// uses it may be queued. Device::allocate_tensor() gives memory that stays so long.
  [[nodiscard]] static Tensor host(const Dims& sizes, DType dtype);

  [[nodiscard]] const TensorView& view() const& { return view_; }
  const TensorView& view() const&& = delete;  // would dangle
  [[nodiscard]] const std::shared_ptr<void>& owner() const { return owner_; }
  [[nodiscard]] const Dims& sizes() const { return view_.sizes; }
  [[nodiscard]] DType dtype() const { return view_.dtype; }

 private:
  TensorView view_;
  std::shared_ptr<void> owner_;
};

}  // namespace tandem
