#pragma once

#include <tandem/base/error.hpp>

namespace tandem::cuda {

/// Something that a kernel can fail in without ending its stream: a signal that never came, ranks that
/// disagree. Kernels leave a record and return; what is enqueued behind them runs over data that may be
/// wrong. Whoever enqueues such a kernel adds its watch to the stream, and the host hears of the fault when
/// it synchronizes.
class StreamWatch {
 public:
  virtual ~StreamWatch() = default;
  /// Ok, or what went wrong so far. Called about every millisecond while a host thread waits for a stream,
  /// and once after; from any host thread.
  [[nodiscard]] virtual Result<void> status() = 0;
  /// What its faults come from: who was told of a fault of one watch was told for all that have the same.
  [[nodiscard]] virtual const void* source() const { return this; }
};

}  // namespace tandem::cuda
