#pragma once

#include <atomic>

namespace tandem::cuda {

/// How many streams of one device record work for replay: counted by the streams, asked by those who must not
/// make or exchange memory meanwhile. A service of the device.
class CaptureCount {
 public:
  /// By CudaStream, when its own capture begins and when it ends (or the stream does).
  void begin() { num_captures_.fetch_add(1, std::memory_order_relaxed); }
  void end() { num_captures_.fetch_sub(1, std::memory_order_relaxed); }
  [[nodiscard]] bool is_capturing() const { return num_captures_.load(std::memory_order_relaxed) > 0; }

 private:
  std::atomic<int> num_captures_{0};
};

}  // namespace tandem::cuda
