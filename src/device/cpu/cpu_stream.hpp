#pragma once

#include <memory>
#include <tandem/base/deadline.hpp>
#include <tandem/base/error.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>
#include <thread>

#include "device/cpu/work_queue.hpp"

namespace tandem::cpu {

/// A queue and the one thread that works it off. Destruction finishes the work first, and looks at no device.
class CpuStream final : public Stream {
 public:
  /// Errors: kDriver when the system has no thread left, kOutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<Stream>> create(Device& device, int priority,
                                                              std::shared_ptr<CpuFrees> frees);
  ~CpuStream() override;

  [[nodiscard]] Result<void> enqueue(Task&& task);
  /// All enqueued so far.
  [[nodiscard]] Position position() const { return {queue_, queue_->last_pushed()}; }
  /// A task that runs even behind a fault, and where it is.
  [[nodiscard]] Result<Position> enqueue_mark(Task&& task);

 private:
  CpuStream(Device& device, int priority, std::shared_ptr<CpuFrees> frees);

  Result<void> do_copy(const TensorView& from, const TensorView& to) override;
  Result<void> do_write_value32(std::uint32_t* word, std::uint32_t value) override;
  Result<void> do_memset32(std::uint32_t* words, std::uint32_t value, std::int64_t count) override;
  Result<void> do_sleep(std::chrono::nanoseconds duration) override;
  Result<void> do_record(Event& event) override;
  Result<void> do_wait(const Event& event) override;
  Result<void> do_wait(Stream& other) override;
  Result<void> do_synchronize(Deadline deadline) override;
  Result<void> join(const Position& position);

  std::shared_ptr<WorkQueue> queue_;
  std::shared_ptr<CpuFrees> frees_;
  std::thread worker_;
};

}  // namespace tandem::cpu
