#pragma once

#include <tandem/base/error.hpp>

namespace tandem {

class Stream;

/// Work that was recorded on a stream instead of run: Stream::begin_capture() to end_capture(). Every launch
/// runs it again, with the memory and the values of the recording.
class Graph {
 public:
  virtual ~Graph() = default;
  /// Enqueues the work on `stream`, of the device that recorded it. Faults of its signals are returned by
  /// stream.synchronize().
  [[nodiscard]] virtual Result<void> launch(Stream& stream) = 0;
};

}  // namespace tandem
