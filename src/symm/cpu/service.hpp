#pragma once

#include <memory>

#include "symm/cpu/segment.hpp"
#include "symm/service.hpp"

namespace tandem::symm::cpu {

class CpuBlock final : public Block {
 public:
  CpuBlock(Device& device, std::shared_ptr<Segment> segment)
      : Block(device, segment->data(), segment->size_bytes(), segment->name().cookie),
        segment_(std::move(segment)) {}
  [[nodiscard]] const std::shared_ptr<Segment>& segment() const { return segment_; }

 private:
  std::shared_ptr<Segment> segment_;
};

class CpuService : public Service {
 public:
  explicit CpuService(Device& device) : device_(device) {}
  Result<std::shared_ptr<Block>> allocate(std::int64_t num_bytes) override;
  Result<std::unique_ptr<Joining>> join(std::shared_ptr<Block> block, std::int64_t pad_bytes) override;
  [[nodiscard]] bool can_place() const override { return true; }
  Result<Placed> place(Group& group, std::vector<Record> records) override;
  Result<void> enqueue_connect(Stream& stream, std::shared_ptr<Peers> peers) override;
  Result<std::shared_ptr<Peers>> make_reporter(Group& group) override;
  std::shared_ptr<Handle> make_handle(std::shared_ptr<Peers> peers, std::int64_t offset_bytes) override;
  Result<void> enqueue_agreement(Stream& stream, Group& group, std::uint64_t sequence,
                                 const bootstrap::Fingerprint& fingerprint,
                                 std::chrono::milliseconds patience) override;
  Result<void> enqueue_end(Stream& stream, Group& group, std::uint64_t sequence) override;
  Result<void> enqueue_chunk_waits(const Handle& handle, const AwaitedChunks& chunks,
                                   Stream& stream) override;
  Result<void> enqueue_word_write(Handle& handle, int peer, const TensorView& words, std::int64_t idx,
                                  std::uint32_t value, Stream& stream) override;
  Result<void> enqueue_crossing(Handle& handle, const Crossing& crossing, Stream& stream) override;
  [[nodiscard]] bool is_capturing() const override { return false; }

 private:
  const HomeProcess home_;
  Device& device_;
};

}  // namespace tandem::symm::cpu
