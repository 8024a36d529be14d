#pragma once

#include <cstdint>
#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <tandem/symm/handle.hpp>

namespace tandem::symm {

/// Allocates memory that peers can map after a rendezvous. No other rank takes part.
/// Shapes:  contiguous.
/// Memory:  zeroed, with all its pages present.
/// Errors:  kInvalidArgument for a negative size or more than 2^62 bytes; kOutOfMemory with the bytes asked
///          for and available; kUnsupported while a stream of the device is capturing.
[[nodiscard]] Result<Tensor> empty(const Dims& sizes, DType dtype, Device& device);

/// Whether `view` lies in memory from empty().
[[nodiscard]] bool is_symmetric(const TensorView& view, const Device& device);

/// Maps every rank's block here. This is a collective call and blocks the host. While the tensor lives, the
/// same tensor and group give the same handle without communication. Another tensor in the same block gives a
/// handle with its own offset. The ranks' tensors pair up by the order of the calls, however they were
/// allocated.
/// Errors:  kInvalidArgument for memory that is not from empty(); kMismatch on every rank, with every rank's
///          size and type; kUnsupported while capturing; kTimeout; kPeerLost.
[[nodiscard]] Result<std::shared_ptr<Handle>> rendezvous(const Tensor& tensor, Group& group);

/// The handle that a rendezvous gave this tensor, or a tensor that contains this view; null if there is none.
/// No other rank takes part.
[[nodiscard]] std::shared_ptr<Handle> find_handle(const TensorView& view, Group& group);

/// The group's workspace on this device, with at least `min_bytes` on every rank. It grows geometrically and
/// never shrinks. When it grows, this is a collective call and blocks the host. Otherwise it is a look-up,
/// which waits for this rank's streams if an op has just made the workspace grow. All ranks must ask for the
/// same sizes in the same order.
/// Errors:  kUnsupported while capturing, with the size to ask for beforehand; as rendezvous().
[[nodiscard]] Result<std::shared_ptr<Handle>> workspace(Group& group, Device& device, std::int64_t min_bytes);

/// Sets the bytes of the pads of handles that this group makes later. The default is 9216 bytes, or 16
/// channels if that is more. The value must be the same on every rank; the rendezvous checks it.
/// Errors:  kInvalidArgument for a size that is no positive multiple of 4*W.
[[nodiscard]] Result<void> set_signal_pad_size(Group& group, std::int64_t num_bytes);

}  // namespace tandem::symm
