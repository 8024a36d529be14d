#pragma once

#include <tandem/base/error.hpp>

namespace tandem {

class Stream;

/// A recording: work that was captured between Stream::begin_capture() and Stream::end_capture(). Each launch
/// runs it again, with the same memory and the same values.
class Graph {
 public:
  virtual ~Graph() = default;
  /// Enqueues the work on `stream`, which must be a stream of the device that recorded it.
  /// Errors:  faults of its waits come from stream.synchronize().
  [[nodiscard]] virtual Result<void> launch(Stream& stream) = 0;
};

}  // namespace tandem
