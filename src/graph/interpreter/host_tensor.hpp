#pragma once

#include <memory>
#include <span>
#include <tandem/base/convert.hpp>
#include <tandem/base/tensor.hpp>
#include <vector>

namespace tandem::graph::interpreter {

/// A value of a program: row-major in host memory, whatever strides PyTorch gave it. A copy shares the
/// memory, which is not written any more once the value belongs to a node.
class HostTensor {
 public:
  /// Zeros.
  HostTensor(const Dims& sizes, DType dtype);
  /// The elements of `view`, converted where the type differs: rounded once.
  [[nodiscard]] static HostTensor copy_of(const TensorView& view, DType dtype);
  /// `values` rounded once to `dtype`.
  template <class T>
  [[nodiscard]] static HostTensor from(std::span<const T> values, const Dims& sizes, DType dtype);

  [[nodiscard]] const TensorView& view() const { return view_; }
  [[nodiscard]] const Dims& sizes() const { return view_.sizes; }
  [[nodiscard]] DType dtype() const { return view_.dtype; }
  [[nodiscard]] std::int64_t numel() const { return view_.numel(); }

  /// The same memory in another shape of as many elements, or in another type of as many bytes.
  [[nodiscard]] HostTensor with_sizes(const Dims& sizes) const;
  [[nodiscard]] HostTensor with_dtype(DType dtype) const;

 private:
  TensorView view_;
  std::shared_ptr<void> owner_;
};

/// Whether both hold the same bytes in the same shape and type.
[[nodiscard]] bool is_same(const HostTensor& x, const HostTensor& y);

/// Elements as f32, f64 or 64-bit integers (T), row-major over the sizes of `view`, which may have any
/// strides.
template <class T>
[[nodiscard]] std::vector<T> elements(const TensorView& view);

/// `view` repeated to `sizes` by PyTorch's rule of broadcasting, without a copy. `sizes` are as
/// broadcast_sizes() makes them.
[[nodiscard]] TensorView broadcast(const TensorView& view, const Dims& sizes);
/// The sizes that both broadcast to. Errors: kInvalidArgument with both.
[[nodiscard]] Result<Dims> broadcast_sizes(const Dims& x, const Dims& y);

}  // namespace tandem::graph::interpreter
