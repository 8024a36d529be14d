#pragma once

#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>

// DLPack is the C interface by which PyTorch, JAX, CuPy and NumPy hand tensors to each other without a copy.
// Its two structures are declared here only, under their own names, so that this header goes together with
// any dlpack.h, and with none.
struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace tandem {

/// Calls the structure's own deleter.
struct DlpackDeleter {
  void operator()(DLManagedTensor* managed) const;
  void operator()(DLManagedTensorVersioned* managed) const;
};
/// What a consumer takes over by release().
using Dlpack = std::unique_ptr<DLManagedTensor, DlpackDeleter>;
using DlpackVersioned = std::unique_ptr<DLManagedTensorVersioned, DlpackDeleter>;

/// Takes over a tensor of another library. The structure's deleter is called when the tensor's last owner is
/// gone. After an error the structure still belongs to the caller.
/// Shapes:  up to kMaxDims dimensions, any strides that are not negative; null strides are row-major.
/// Types:   float 16, 32 and 64, bfloat 16, float8_e4m3fn, float8_e5m2, int 8, 32 and 64, uint 8 and 32,
///          bool 8; one lane.
/// Memory:  CPU, pinned host memory (as CPU), CUDA. The read-only flag becomes TensorView::is_read_only. The
///          deleter does not wait for work that is queued: call Stream::synchronize() first.
/// Order:   the producer's work on the memory must be done, or ordered before the stream that uses it.
/// Errors:  kInvalidArgument for a null structure, null memory, a negative or too large size, an address that
///          is no multiple of the element's size; kUnsupported for another type, number of lanes or device,
///          negative strides, more dimensions, or a major version above 1.
/// Source:  docs/guide/dlpack.md
[[nodiscard]] Result<Tensor> from_dlpack(DLManagedTensor* managed);
[[nodiscard]] Result<Tensor> from_dlpack(DLManagedTensorVersioned* managed);

/// Hands a tensor to another library. The structure shares the memory and keeps its owner alive.
/// Order:   work that is queued on the memory must be done, or ordered before the consumer's.
/// Errors:  kUnsupported for a read-only view in the form without a version, which has no flag for it.
/// Source:  docs/guide/dlpack.md
[[nodiscard]] Result<Dlpack> to_dlpack(const Tensor& tensor);
[[nodiscard]] Result<Dlpack> to_dlpack(const TensorView& view, std::shared_ptr<void> owner);
/// The same with version 1.1, which can say that memory is read-only.
[[nodiscard]] Result<DlpackVersioned> to_dlpack_versioned(const Tensor& tensor);
[[nodiscard]] Result<DlpackVersioned> to_dlpack_versioned(const TensorView& view,
                                                          std::shared_ptr<void> owner);

}  // namespace tandem
