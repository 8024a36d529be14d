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

/// Channels of a pad that tandem's own ops use; channels from kFirstUserChannel on are the user's.
inline constexpr int kGatherChannel = 0;         ///< 0 and 1
inline constexpr int kScatterChannel = 2;        ///< 2 and 3
inline constexpr int kLowContentionChannel = 4;  ///< 4 and 5
inline constexpr int kHostProgramChannel = 6;    ///< 6 and 7
inline constexpr int kFirstUserChannel = 8;

/// Longest wait of one signal; nothing means the group's Config::op_timeout.
using Timeout = std::optional<std::chrono::milliseconds>;

/// One symmetric block as one rank of a group sees it: every rank's data and signal pad mapped here. The
/// handle keeps its block and the mappings alive, also after the tensor is gone.
///
/// A pad is an array of u32 words, all zero at rest. The signal from rank s to rank d on channel c is word
/// `W*c + s` of d's pad: put turns it 0 -> 1 (release), wait turns it 1 -> 0 (acquire). A second put waits
/// until the first was consumed, so no signal is lost or merged and nothing needs resetting.
/// Source:  docs/design/symmetric_memory.md
class Handle {
 public:
  virtual ~Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int world_size() const = 0;
  [[nodiscard]] virtual Device& device() const = 0;
  /// Whether the ranks met in this group, and not in another one or one that is gone.
  [[nodiscard]] virtual bool is_of(const Group& group) const = 0;
  /// Usable data bytes; the same on every rank.
  [[nodiscard]] virtual std::int64_t buffer_size_bytes() const = 0;
  [[nodiscard]] virtual std::int64_t signal_pad_size_bytes() const = 0;
  /// Where the rendezvoused tensor starts inside the block.
  [[nodiscard]] virtual std::int64_t offset_bytes() const = 0;
  /// Channels [0, num_channels()) exist: pad bytes / (4 * W).
  [[nodiscard]] int num_channels() const;
  /// Addresses in this process, by rank. The `_dev` forms are arrays that kernels can index.
  [[nodiscard]] virtual std::span<void* const> buffer_ptrs() const = 0;
  [[nodiscard]] virtual std::span<std::uint32_t* const> signal_pad_ptrs() const = 0;
  [[nodiscard]] virtual void* const* buffer_ptrs_dev() const = 0;
  [[nodiscard]] virtual std::uint32_t* const* signal_pad_ptrs_dev() const = 0;

  /// Contiguous view on rank's data, `storage_offset` elements of `dtype` from the start of the data (the
  /// handle's own offset is not added). Errors: kInvalidArgument with requested and available bytes, or for a
  /// bad rank.
  [[nodiscard]] Result<TensorView> get_buffer(int rank, const Dims& sizes, DType dtype,
                                              std::int64_t storage_offset = 0) const;
  /// The same on rank's pad. Empty sizes: 1-D over the whole pad.
  [[nodiscard]] Result<TensorView> get_signal_pad(int rank, const Dims& sizes = {}, DType dtype = DType::kU32,
                                                  std::int64_t storage_offset = 0) const;
  /// Like get_buffer, starting at the handle's own offset.
  [[nodiscard]] Result<TensorView> get_remote_tensor(int peer, const Dims& sizes, DType dtype) const;

  // Stream-ordered. Errors now: kInvalidArgument for a rank or channel out of range (with the largest legal
  // one), a stream of another device, a timeout <= 0; the group's error if it is poisoned. Errors at
  // synchronize(): kTimeout, kPeerLost.
  /// Signals `dst_rank`: all earlier writes of this stream are visible to whoever waits for it.
  [[nodiscard]] Result<void> put_signal(Stream& stream, int dst_rank, int channel = 0, Timeout timeout = {});
  [[nodiscard]] Result<void> wait_signal(Stream& stream, int src_rank, int channel = 0, Timeout timeout = {});
  /// Nobody passes before all have arrived; writes before it are visible after it, on every rank.
  [[nodiscard]] Result<void> barrier(Stream& stream, int channel = 0, Timeout timeout = {});
  /// One-sided read of to.numel() elements that start `offset` elements after the handle's offset on `peer`.
  /// Memory: `to` may be those elements themselves: then nothing is done. No other overlap.
  /// Errors: kInvalidArgument for a non-contiguous `to`, a range beyond the peer's data, a misaligned offset,
  /// overlap.
  [[nodiscard]] Result<void> get(Stream& stream, const TensorView& to, int peer, std::int64_t offset = 0);
  /// One-sided write of `from` to the elements that start `offset` elements after the handle's offset on
  /// `peer`. It tells nobody: a signal or a word written behind it on this stream does. Memory and errors: as
  /// get().
  [[nodiscard]] Result<void> put(Stream& stream, const TensorView& from, int peer, std::int64_t offset = 0);

  /// What a communication kernel of the user's needs; see kernel.hpp. Valid as long as the handle and its
  /// group. A timeout <= 0 makes every wait of the kernel fail with kInvalidArgument.
  [[nodiscard]] virtual KernelHandle kernel_handle(Timeout timeout = {}) const = 0;
  /// Before a kernel of the user's that signals is launched on `stream` of a GPU: from now on
  /// stream.synchronize() returns what its waits give up for, and the pads stay mapped until it has run.
  /// Nothing to do for a CPU stream, whose tasks return their errors themselves.
  /// Errors: kInvalidArgument for a stream of another device; the group's error.
  [[nodiscard]] Result<void> watch(Stream& stream) const;

 protected:
  Handle() = default;
  [[nodiscard]] virtual Result<void> check_usable(const Stream& stream) const = 0;
  virtual Result<void> do_put_signal(Stream& stream, int dst_rank, int channel, Timeout timeout) = 0;
  virtual Result<void> do_wait_signal(Stream& stream, int src_rank, int channel, Timeout timeout) = 0;
  virtual Result<void> do_barrier(Stream& stream, int channel, Timeout timeout) = 0;
  virtual Result<void> do_get(Stream& stream, const TensorView& from, const TensorView& to, int peer) = 0;
  virtual Result<void> do_put(Stream& stream, const TensorView& from, const TensorView& to, int peer) = 0;
  virtual Result<void> do_watch(Stream& stream) const;
};

}  // namespace tandem::symm
