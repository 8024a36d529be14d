#pragma once

#include <tandem/base/deadline.hpp>
#include <tandem/base/error.hpp>

namespace tandem {

/// A position in a stream. An event may be recorded many times: a wait or a query means the last record
/// before it. An event carries the fault of its stream. So a stream that waits for it fails too, and uses no
/// bad data.
class Event {
 public:
  virtual ~Event() = default;
  /// Whether the work before the event is done. It is true if the event was never recorded.
  [[nodiscard]] virtual bool is_done() const = 0;
  /// Blocks the host until the work before the event is done.
  /// Errors:  kTimeout; the stream's fault.
  [[nodiscard]] virtual Result<void> synchronize(Deadline deadline) = 0;
  /// The time from `since` to this event. Both must be done.
  /// Units:   us.
  /// Errors:  kInvalidArgument if one of them is not done, or is a mark without times.
  [[nodiscard]] virtual Result<double> elapsed_us(const Event& since) const = 0;
};

}  // namespace tandem
