#pragma once

#include <memory>

#include "symm/cpu/segment.hpp"
#include "symm/service.hpp"

namespace tandem::symm::cpu {

/// Hands this rank's segments to the others through the store and maps theirs: as open files between
/// processes, as shared objects between threads, so that all threads use one mapping at one address.
class CpuJoining final : public Joining {
 public:
  CpuJoining(std::shared_ptr<Segment> data, std::shared_ptr<Segment> pad)
      : data_(std::move(data)), pad_(std::move(pad)) {}
  [[nodiscard]] std::uint64_t pad_cookie() const override { return pad_->name().cookie; }
  Result<std::shared_ptr<Peers>> connect(Group& group, std::span<const Record> table) override;

 private:
  std::shared_ptr<Segment> data_;
  std::shared_ptr<Segment> pad_;
};

}  // namespace tandem::symm::cpu
