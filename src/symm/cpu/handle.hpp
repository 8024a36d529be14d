#pragma once

#include <memory>
#include <tandem/symm/handle.hpp>

#include "symm/peers_handle.hpp"

namespace tandem::symm::cpu {

/// A handle whose signals and copies are tasks of a CPU stream. Queued tasks share `peers`: a handle may be
/// dropped while its work is still in a queue.
class CpuHandle final : public PeersHandle {
 public:
  CpuHandle(std::shared_ptr<Peers> peers, std::int64_t offset_bytes)
      : PeersHandle(std::move(peers), offset_bytes) {}

  [[nodiscard]] void* const* buffer_ptrs_dev() const override { return peers()->buffers.data(); }
  [[nodiscard]] std::uint32_t* const* signal_pad_ptrs_dev() const override { return peers()->pads.data(); }

 private:
  Result<void> do_put_signal(Stream& stream, int dst_rank, int channel, Timeout timeout) override;
  Result<void> do_wait_signal(Stream& stream, int src_rank, int channel, Timeout timeout) override;
  Result<void> do_barrier(Stream& stream, int channel, Timeout timeout) override;
  Result<void> do_get(Stream& stream, const TensorView& from, const TensorView& to, int peer) override;
  Result<void> do_put(Stream& stream, const TensorView& from, const TensorView& to, int peer) override;
  [[nodiscard]] void* control() const override { return peers().get(); }
};

}  // namespace tandem::symm::cpu
