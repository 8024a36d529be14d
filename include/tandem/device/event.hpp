#pragma once

#include <tandem/base/deadline.hpp>
#include <tandem/base/error.hpp>

namespace tandem {

/// A mark in a stream. Recorded again and again; a wait or a query means the last record before it. An event
/// carries the error of its stream, so that a stream that waits for it fails too instead of using bad data.
class Event {
 public:
  virtual ~Event() = default;
  /// Whether the work before the mark is done (true if never recorded).
  [[nodiscard]] virtual bool is_done() const = 0;
  /// Blocks the host. Errors: kTimeout; the stream's error.
  [[nodiscard]] virtual Result<void> synchronize(Deadline deadline) = 0;
  /// Microseconds between two marks that are done. Errors: kInvalidArgument if one is not.
  [[nodiscard]] virtual Result<double> elapsed_us(const Event& since) const = 0;
};

}  // namespace tandem
