#pragma once

#include <memory>
#include <string_view>
#include <tandem/symm/handle.hpp>

#include "device/cuda/cuda_stream.hpp"
#include "symm/cuda/peers.hpp"
#include "symm/peers_handle.hpp"

namespace tandem::symm::cuda {

/// A handle whose signals are kernels and whose copies are the copy engine's.
class CudaHandle final : public PeersHandle {
 public:
  CudaHandle(std::shared_ptr<CudaPeers> peers, std::int64_t offset_bytes)
      : PeersHandle(std::move(peers), offset_bytes) {}

  [[nodiscard]] void* const* buffer_ptrs_dev() const override { return cuda_peers().buffers_dev; }
  [[nodiscard]] std::uint32_t* const* signal_pad_ptrs_dev() const override { return cuda_peers().pads_dev; }
  [[nodiscard]] bool meets_on_stream() const override { return cuda_peers().stream_barriers().can_run(); }
  /// symm::reset_words() on a stream that watches.
  Result<void> reset_words(Stream& stream, const TensorView& words, int channel);

 private:
  Result<void> do_put_signal(Stream& stream, int dst_rank, int channel, Timeout timeout) override;
  Result<void> do_wait_signal(Stream& stream, int src_rank, int channel, Timeout timeout) override;
  Result<void> do_barrier(Stream& stream, int channel, Timeout timeout) override;
  Result<void> do_barrier_aside(Stream& stream, int channel, int turn) override;
  Result<void> do_get(Stream& stream, const TensorView& from, const TensorView& to, int peer) override;
  Result<void> do_put(Stream& stream, const TensorView& from, const TensorView& to, int peer) override;
  Result<void> do_watch(Stream& stream) const override;
  /// A copy from or to `peer`; `point` is the fault's.
  Result<void> copy(Stream& stream, std::string_view point, const TensorView& from, const TensorView& to,
                    int peer);
  /// `stream` once it watches the peers.
  Result<tandem::cuda::CudaStream*> watched(Stream& stream, std::string_view who) const;
  [[nodiscard]] std::uint32_t* slot(int owner, int channel, int source) const;
  [[nodiscard]] void* control() const override { return cuda_peers().control_dev; }
  [[nodiscard]] const CudaPeers& cuda_peers() const { return static_cast<const CudaPeers&>(*peers()); }
};

}  // namespace tandem::symm::cuda
