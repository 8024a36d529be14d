#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <tandem/base/deadline.hpp>
#include <tandem/base/error.hpp>
#include <tandem/device/event.hpp>

#include "device/cpu/work_queue.hpp"

namespace tandem::cpu {

class CpuStream;

/// A position in a stream, and the time at which the stream came there.
class CpuEvent final : public Event {
 public:
  CpuEvent() : mark_(std::make_shared<Mark>()) {}

  [[nodiscard]] bool is_done() const override;
  [[nodiscard]] Result<void> synchronize(Deadline deadline) override;
  [[nodiscard]] Result<double> elapsed_us(const Event& since) const override;

  [[nodiscard]] Result<void> record_on(CpuStream& stream);
  /// Of the last record.
  [[nodiscard]] Position position() const;

 private:
  /// Shared with the tasks of records under way, which may outlive the event.
  struct Mark {
    std::mutex mutex;
    Position position;
    std::uint64_t num_records = 0;
    std::chrono::steady_clock::time_point time;  // of the last record, once it is done
  };

  std::shared_ptr<Mark> mark_;
};

}  // namespace tandem::cpu
