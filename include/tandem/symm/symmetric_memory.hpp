#pragma once

#include <cstdint>
#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <tandem/symm/handle.hpp>

namespace tandem::symm {

/// Memory that peers can map after a rendezvous. Local: no communication.
/// Shapes:  contiguous; zeroed, with all its pages present.
/// Errors:  kInvalidArgument for a negative size or more than 2^62 bytes; kOutOfMemory with the bytes asked
///          for and available; kUnsupported while a stream of the device is capturing.
[[nodiscard]] Result<Tensor> empty(const Dims& sizes, DType dtype, Device& device);

/// Whether `view` lies in memory from empty().
[[nodiscard]] bool is_symmetric(const TensorView& view, const Device& device);

/// Maps every rank's block here. Collective over the group, blocks the host; cached while the tensor lives:
/// the same tensor and group give the same handle without communication, and so does another start in the
/// same block, with its own offset. Tensors pair up by the order of the calls, however they were allocated.
/// Errors:  kInvalidArgument for memory that is not from empty(); kMismatch on every rank, listing every
///          rank's size and type; kUnsupported while capturing; kTimeout, kPeerLost.
[[nodiscard]] Result<std::shared_ptr<Handle>> rendezvous(const Tensor& tensor, Group& group);

/// The handle of a rendezvoused tensor or of a view of it; null if there is none. Local.
[[nodiscard]] std::shared_ptr<Handle> find_handle(const TensorView& view, Group& group);

/// The group's scratch memory on this device, at least `min_bytes` on every rank. Grows geometrically, never
/// shrinks; collective and host-blocking when it grows, else a look-up (which waits for this rank's streams
/// where an op has just made it grow). All ranks ask for the same size in the same order.
/// Errors:  kUnsupported while capturing, with the size to ask for beforehand; as rendezvous().
[[nodiscard]] Result<std::shared_ptr<Handle>> workspace(Group& group, Device& device, std::int64_t min_bytes);

/// Bytes of each pad of handles made later by this group; a positive multiple of 4*W, the same on every rank
/// (the rendezvous checks). By default 9216, more where that is less than 16 channels.
[[nodiscard]] Result<void> set_signal_pad_size(Group& group, std::int64_t num_bytes);

}  // namespace tandem::symm
