#pragma once

#include <functional>
#include <memory>
#include <tandem/symm/handle.hpp>

#include "session.hpp"

namespace tandem::cli {

struct OneTime {
  double us = 0;       ///< of the work
  double host_us = 0;  ///< of enqueueing it
};

/// Times work that all ranks run together, on one rank. The host's clock on CPUs; on GPUs events on the
/// stream, behind a cold L2, a pause in which the host enqueues, and a barrier on the device, so that neither
/// the host's cost nor the ranks' skew is in the figure.
class Stopwatch {
 public:
  explicit Stopwatch(const Session& session);
  /// Blocks until the work is done.
  [[nodiscard]] OneTime time(const std::function<void()>& enqueue) const;

 private:
  [[nodiscard]] OneTime time_on_host(const std::function<void()>& enqueue) const;

  const Session& session_;
  Tensor larger_than_cache_;
  std::shared_ptr<symm::Handle> meeting_;
  std::unique_ptr<Event> start_;
  std::unique_ptr<Event> end_;
};

/// Work recorded once and replayed by run().
class Replay {
 public:
  Replay(const Session& session, const std::function<void()>& enqueue);
  void run() const;

 private:
  const Session& session_;
  std::unique_ptr<Graph> graph_;
};

}  // namespace tandem::cli
