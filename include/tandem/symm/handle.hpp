#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/kernel.hpp>

namespace tandem::symm {

// Ops of the library use these channels of a pad. Channels from kFirstUserChannel on are the user's.
inline constexpr int kGatherChannel = 0;         ///< 0 and 1
inline constexpr int kScatterChannel = 2;        ///< 2 and 3
inline constexpr int kLowContentionChannel = 4;  ///< 4 and 5
inline constexpr int kHostProgramChannel = 6;    ///< 6 and 7
inline constexpr int kFirstUserChannel = 8;

/// The longest wait for one signal. Nothing means the group's Config::op_timeout.
using Timeout = std::optional<std::chrono::milliseconds>;

/// A rank's access to the blocks and signal pads of one rendezvous: data and pads of all ranks are mapped
/// here. The handle keeps its block and the mappings alive, also after the tensor is gone.
///
/// A pad is an array of u32 words that are zero at rest. The signal from rank s to rank d on channel c is
/// word `W*c + s` of d's pad. Put changes it from 0 to 1 (release). Wait changes it from 1 to 0 (acquire). A
/// second put waits until the first signal was taken. So no signal is lost or merged, and none needs a reset.
/// Source:  docs/design/symmetric_memory.md
class Handle {
 public:
  virtual ~Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int world_size() const = 0;
  [[nodiscard]] virtual Device& device() const = 0;
  /// Whether the rendezvous was one of this group.
  [[nodiscard]] virtual bool is_of(const Group& group) const = 0;
  /// The usable bytes of data, the same on every rank.
  [[nodiscard]] virtual std::int64_t buffer_size_bytes() const = 0;
  [[nodiscard]] virtual std::int64_t signal_pad_size_bytes() const = 0;
  /// The offset of the tensor of the rendezvous in its block.
  [[nodiscard]] virtual std::int64_t offset_bytes() const = 0;
  /// The number of channels: pad bytes / (4 * W).
  [[nodiscard]] int num_channels() const;
  /// Addresses in this process, by rank. The `_dev` forms are arrays that kernels can read.
  [[nodiscard]] virtual std::span<void* const> buffer_ptrs() const = 0;
  [[nodiscard]] virtual std::span<std::uint32_t* const> signal_pad_ptrs() const = 0;
  [[nodiscard]] virtual void* const* buffer_ptrs_dev() const = 0;
  [[nodiscard]] virtual std::uint32_t* const* signal_pad_ptrs_dev() const = 0;

  /// A contiguous view of a rank's data. It starts `storage_offset` elements of `dtype` after the start of
  /// the data; the handle's own offset is not added.
  /// Errors:  kInvalidArgument with the requested and the available bytes, or for a rank that does not exist.
  [[nodiscard]] Result<TensorView> get_buffer(int rank, const Dims& sizes, DType dtype,
                                              std::int64_t storage_offset = 0) const;
  /// The same for a rank's pad. With empty sizes the view is 1-D and covers the whole pad.
  [[nodiscard]] Result<TensorView> get_signal_pad(int rank, const Dims& sizes = {}, DType dtype = DType::kU32,
                                                  std::int64_t storage_offset = 0) const;
  /// Like get_buffer(), but the view starts at the handle's own offset.
  [[nodiscard]] Result<TensorView> get_remote_tensor(int peer, const Dims& sizes, DType dtype) const;

  /// Enqueues a put: signals `dst_rank`. All earlier writes of this stream are visible after the wait.
  /// Errors:  kInvalidArgument now for a rank or channel out of range (with the largest legal one), a stream
  ///          of another device, or a timeout <= 0; the group's error if it is poisoned; kTimeout and
  ///          kPeerLost from synchronize().
  [[nodiscard]] Result<void> put_signal(Stream& stream, int dst_rank, int channel = 0, Timeout timeout = {});
  /// Enqueues a wait for the signal of `src_rank`, which it takes. Errors as put_signal().
  [[nodiscard]] Result<void> wait_signal(Stream& stream, int src_rank, int channel = 0, Timeout timeout = {});
  /// Enqueues a barrier: no rank passes it before all ranks have reached it. Writes before the barrier are
  /// visible after it, on every rank. Errors as put_signal().
  [[nodiscard]] Result<void> barrier(Stream& stream, int channel = 0, Timeout timeout = {});
  /// Enqueues a one-sided read of to.numel() elements. They start `offset` elements after the handle's offset
  /// on `peer`.
  /// Memory:  `to` may be those elements themselves; nothing is done then. No other overlap is allowed.
  /// Errors:  kInvalidArgument for a `to` that is not contiguous, a range beyond the peer's data, an offset
  ///          that is not aligned, a read-only `to`, or overlap.
  [[nodiscard]] Result<void> get(Stream& stream, const TensorView& to, int peer, std::int64_t offset = 0);
  /// Enqueues a one-sided write of `from`, to the elements that start `offset` elements after the handle's
  /// offset on `peer`. The peer does not notice: send a signal or a word after it on this stream.
  /// Memory:  as get().
  /// Errors:  as get().
  [[nodiscard]] Result<void> put(Stream& stream, const TensorView& from, int peer, std::int64_t offset = 0);

  /// What your own communication kernel needs; see kernel.hpp. It is valid as long as the handle and its
  /// group. With a timeout <= 0, every wait of the kernel fails with kInvalidArgument.
  [[nodiscard]] virtual KernelHandle kernel_handle(Timeout timeout = {}) const = 0;
  /// Makes `stream` report the faults of your own kernels. Call it before you launch a kernel with signals on
  /// a GPU. Then stream.synchronize() returns why a wait gave up, and the pads stay mapped until the kernel
  /// has run. A CPU stream needs no watch: its tasks return their errors themselves.
  /// Errors:  kInvalidArgument for a stream of another device; the group's error.
  [[nodiscard]] Result<void> watch(Stream& stream) const;

 protected:
  Handle() = default;
  /// Whether this process made it: a child by fork() has none of its memory.
  [[nodiscard]] virtual Result<void> check_process() const = 0;
  [[nodiscard]] virtual Result<void> check_usable(const Stream& stream) const = 0;
  virtual Result<void> do_put_signal(Stream& stream, int dst_rank, int channel, Timeout timeout) = 0;
  virtual Result<void> do_wait_signal(Stream& stream, int src_rank, int channel, Timeout timeout) = 0;
  virtual Result<void> do_barrier(Stream& stream, int channel, Timeout timeout) = 0;
  virtual Result<void> do_get(Stream& stream, const TensorView& from, const TensorView& to, int peer) = 0;
  virtual Result<void> do_put(Stream& stream, const TensorView& from, const TensorView& to, int peer) = 0;
  virtual Result<void> do_watch(Stream& stream) const;
};

}  // namespace tandem::symm
