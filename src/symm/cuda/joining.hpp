#pragma once

#include <memory>

#include "symm/cuda/segment.hpp"
#include "symm/service.hpp"

namespace tandem::symm::cuda {

/// Hands this rank's segments to the others and maps theirs for this rank's GPU.
class CudaJoining final : public Joining {
 public:
  CudaJoining(Device& device, std::shared_ptr<Segment> data, std::shared_ptr<Segment> pad)
      : device_(device), data_(std::move(data)), pad_(std::move(pad)) {}
  [[nodiscard]] std::uint64_t pad_cookie() const override { return pad_->name().cookie; }
  Result<std::shared_ptr<Peers>> connect(Group& group, std::span<const Record> table) override;

 private:
  Device& device_;
  std::shared_ptr<Segment> data_;
  std::shared_ptr<Segment> pad_;
};

}  // namespace tandem::symm::cuda
