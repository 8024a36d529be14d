#pragma once

#include <memory>
#include <string_view>
#include <tandem/symm/handle.hpp>

#include "device/cuda/cuda_stream.hpp"
#include "symm/cuda/peers.hpp"

namespace tandem::symm::cuda {

/// A handle whose signals are kernels and whose copies are the copy engine's.
class CudaHandle final : public Handle {
 public:
  CudaHandle(std::shared_ptr<CudaPeers> peers, std::int64_t offset_bytes)
      : peers_(std::move(peers)), offset_bytes_(offset_bytes) {}

  [[nodiscard]] int rank() const override { return peers_->rank; }
  [[nodiscard]] int world_size() const override { return peers_->world_size; }
  [[nodiscard]] Device& device() const override { return *peers_->device; }
  [[nodiscard]] std::int64_t buffer_size_bytes() const override { return peers_->buffer_bytes; }
  [[nodiscard]] std::int64_t signal_pad_size_bytes() const override { return peers_->pad_bytes; }
  [[nodiscard]] std::int64_t offset_bytes() const override { return offset_bytes_; }
  [[nodiscard]] std::span<void* const> buffer_ptrs() const override { return peers_->buffers; }
  [[nodiscard]] std::span<std::uint32_t* const> signal_pad_ptrs() const override { return peers_->pads; }
  [[nodiscard]] void* const* buffer_ptrs_dev() const override { return peers_->buffers_dev; }
  [[nodiscard]] std::uint32_t* const* signal_pad_ptrs_dev() const override { return peers_->pads_dev; }
  [[nodiscard]] KernelHandle kernel_handle(Timeout timeout) const override;

 private:
  Result<void> check_usable(const Stream& stream) const override;
  Result<void> do_put_signal(Stream& stream, int dst_rank, int channel, Timeout timeout) override;
  Result<void> do_wait_signal(Stream& stream, int src_rank, int channel, Timeout timeout) override;
  Result<void> do_barrier(Stream& stream, int channel, Timeout timeout) override;
  Result<void> do_get(Stream& stream, const TensorView& from, const TensorView& to, int peer) override;
  Result<void> do_watch(Stream& stream) const override;
  /// `stream` once it watches the peers.
  Result<cudaStream_t> watched(Stream& stream, std::string_view who) const;
  [[nodiscard]] std::uint32_t* slot(int owner, int channel, int source) const;

  std::shared_ptr<CudaPeers> peers_;
  std::int64_t offset_bytes_;
};

}  // namespace tandem::symm::cuda
