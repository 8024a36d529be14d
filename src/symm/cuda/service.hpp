#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "device/cuda/internal_stream.hpp"
#include "symm/cuda/segment.hpp"
#include "symm/service.hpp"

namespace tandem::symm::cuda {

class CudaBlock final : public Block {
 public:
  CudaBlock(Device& device, std::shared_ptr<Segment> segment)
      : Block(device, segment->data(), segment->name().num_bytes, segment->name().cookie),
        segment_(std::move(segment)) {}
  [[nodiscard]] const std::shared_ptr<Segment>& segment() const { return segment_; }

 private:
  std::shared_ptr<Segment> segment_;
};

class CudaService final : public Service {
 public:
  [[nodiscard]] static Result<std::shared_ptr<Service>> make(Device& device);
  explicit CudaService(Device& device) : device_(device) {}
  Result<std::shared_ptr<Block>> allocate(std::int64_t num_bytes) override;
  Result<std::unique_ptr<Joining>> join(std::shared_ptr<Block> block, std::int64_t pad_bytes) override;
  Result<std::shared_ptr<Peers>> make_reporter(Group& group) override;
  std::shared_ptr<Handle> make_handle(std::shared_ptr<Peers> peers, std::int64_t offset_bytes) override;
  /// Announces the call and returns: neither host nor stream waits for the other ranks. A disagreement is
  /// found while a host synchronizes, or at its next call; it poisons the group, which ends the waits of the
  /// kernels. Where ranks share the GPU, and while `stream` captures, the hosts agree at once; replays do not
  /// agree again.
  Result<void> enqueue_agreement(Stream& stream, Group& group, std::uint64_t sequence,
                                 const bootstrap::Fingerprint& fingerprint,
                                 std::chrono::milliseconds patience) override;
  Result<void> end_call(Group& group) override;
  Result<void> enqueue_chunk_waits(const Handle& handle, const AwaitedChunks& chunks,
                                   Stream& stream) override;
  [[nodiscard]] Result<void> enqueue_word_reset(Handle& handle, const TensorView& words, int channel,
                                                Stream& stream) override;
  [[nodiscard]] bool is_capturing() const override;

 private:
  Device& device_;
  int device_idx_ = device_.id().index;
  std::shared_ptr<tandem::cuda::InternalStream> internal_;
  std::shared_ptr<tandem::cuda::SharedGpu> sharing_;
};

}  // namespace tandem::symm::cuda
