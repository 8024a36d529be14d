#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tandem/base/dtype.hpp>
#include <tandem/base/shape.hpp>
#include <utility>

namespace tandem {

/// The kind of device that memory belongs to.
enum class DeviceKind : std::uint8_t { kCpu, kCuda };

/// One device of this process.
struct DeviceId {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  friend bool operator==(DeviceId x, DeviceId y) { return x.kind == y.kind && x.index == y.index; }
};

/// "cpu:0", "cuda:3".
[[nodiscard]] std::string to_string(DeviceId id);

/// Sizes, strides, element type and address of memory that something else owns. A view is a value and does
/// not keep the memory alive. Ops that are enqueued with it use the memory until a later
/// Stream::synchronize(). Stream says which memory the library keeps until then.
/// Units:   strides in elements.
/// Memory:  No call writes to a view that is read-only, or whose elements share memory (stride 0, say). None
///          writes to a view that shares a byte with another argument, unless its own "Memory:" allows that.
///          Only elements count, so column blocks of one matrix do not overlap. Inputs may overlap.
/// Errors:  kInvalidArgument before anything is enqueued, with both arguments and the bytes that they cover.
struct TensorView {
  void* data = nullptr;
  Dims sizes;
  Dims strides;
  DType dtype = DType::kF32;
  DeviceId device;
  /// Whether the memory must not be written. Every call refuses such a view as an output. Views that are made
  /// from it are read-only too.
  bool is_read_only = false;

  /// A row-major view of `data`.
  [[nodiscard]] static TensorView contiguous(void* data, const Dims& sizes, DType dtype,
                                             DeviceId device = {});
  /// A row-major view of memory that must not be written: an input.
  [[nodiscard]] static TensorView read_only(const void* data, const Dims& sizes, DType dtype,
                                            DeviceId device = {});

  [[nodiscard]] int dim() const { return sizes.size(); }
  [[nodiscard]] std::int64_t size(int d) const { return sizes[d]; }
  [[nodiscard]] std::int64_t stride(int d) const { return strides[d]; }
  [[nodiscard]] std::int64_t numel() const { return tandem::numel(sizes); }
  /// The bytes of all elements, without holes between them.
  [[nodiscard]] std::int64_t size_bytes() const { return numel() * tandem::size_bytes(dtype); }
  /// Whether the view is row-major without holes. Strides of dimensions of size 1 do not matter, and none
  /// matter if the view is empty.
  [[nodiscard]] bool is_contiguous() const;
  template <class T>
  [[nodiscard]] T* data_as() const {
    return static_cast<T*>(data);
  }

  // Views of the same memory. Arguments out of range are a caller's bug, and asserted.
  /// The view with dimension `from` moved to position `to`, and the others in order.
  [[nodiscard]] TensorView movedim(int from, int to) const;
  /// The elements [start, start + length) of dimension d.
  [[nodiscard]] TensorView narrow(int d, std::int64_t start, std::int64_t length) const;
  /// The elements with index idx in dimension d, without that dimension.
  [[nodiscard]] TensorView select(int d, std::int64_t idx) const;
  /// Whether flatten_rows() is possible without a copy.
  [[nodiscard]] bool can_flatten_rows() const;
  /// The view as [rows, last]: all dimensions but the last become one. It needs can_flatten_rows().
  [[nodiscard]] TensorView flatten_rows() const;
};

/// "f32 [8, 64] strides [64, 1] on cpu:0".
[[nodiscard]] std::string to_string(const TensorView& view);

/// Owns memory together with its shape. A tensor is move-only. Calls take its view().
class Tensor {
 public:
  Tensor() = default;
  /// The tensor releases `owner` at its end. The owner's deleter must not throw.
  Tensor(TensorView view, std::shared_ptr<void> owner) : view_(view), owner_(std::move(owner)) {}
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(Tensor&&) noexcept = default;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  /// Allocates zeroed, contiguous, 64-byte aligned host memory that belongs to no device. It is freed with
  /// the tensor, even while queued work uses it. Memory of Device::allocate_tensor() stays until that has
  /// run.
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
