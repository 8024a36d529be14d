#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>
#include <tandem/device/device.hpp>
#include <tandem/device/event.hpp>

#include "device/cuda/host_wait.hpp"
#include "device/cuda/watch_list.hpp"

namespace tandem::cuda {

class CudaStream;

/// A mark in a stream of one GPU, with the watches that the stream had there. Told faults are forgotten by
/// streams, not by marks: until it is recorded again, a mark goes on saying what its watches say.
///
/// A mark made while its stream was recording a graph is an edge of that graph: replays do not reach it. It
/// counts as done for the host, and has no time.
class CudaEvent final : public Event {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Event>> create(const Device& device, unsigned flags);
  /// Also while the mark is enqueued and others wait for it.
  ~CudaEvent() override;

  [[nodiscard]] bool is_done() const override;
  [[nodiscard]] Result<void> synchronize(Deadline deadline) override;
  [[nodiscard]] Result<double> elapsed_us(const Event& since) const override;

  [[nodiscard]] Result<void> record_on(CudaStream& stream);
  /// Later work of `stream` waits for the last record.
  [[nodiscard]] Result<void> make_wait(CudaStream& stream) const;

 private:
  enum class Mark : std::uint8_t { kNever, kEnqueued, kCaptured };

  explicit CudaEvent(const Device& device) : device_(device.id()), spin_(device.config().spin) {}

  // No reference to the device: a group may end after it, with the marks of its last ops.
  const DeviceId device_;
  const Spin spin_;
  cudaEvent_t native_ = nullptr;
  bool has_time_ = true;
  std::atomic<Mark> mark_{Mark::kNever};
  WatchList watches_;
};

}  // namespace tandem::cuda
