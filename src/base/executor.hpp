#pragma once

#include <cstdint>
#include <optional>

namespace tandem {

// Who waits for whom inside this process, for those who look for circles of waits. An executor does one thing
// after the other: a host thread, or a stream with a thread of its own.

/// Names an executor in this process; never 0, never used again.
using ExecutorKey = std::uint64_t;

[[nodiscard]] ExecutorKey this_executor();
[[nodiscard]] ExecutorKey executor_of_stream(std::uint64_t stream_id);

/// While it lives, this thread is the executor of a stream's work.
class RunsStream {
 public:
  explicit RunsStream(std::uint64_t stream_id);
  ~RunsStream();
  RunsStream(const RunsStream&) = delete;
  RunsStream& operator=(const RunsStream&) = delete;

 private:
  ExecutorKey before_;
};

/// While it lives, this thread waits for what another executor does. Allocates nothing.
class WaitsForExecutor {
 public:
  explicit WaitsForExecutor(ExecutorKey executor);
  ~WaitsForExecutor();
  WaitsForExecutor(const WaitsForExecutor&) = delete;
  WaitsForExecutor& operator=(const WaitsForExecutor&) = delete;
};

/// An executor's wait for another one. The number tells one wait from the next.
struct ExecutorWait {
  ExecutorKey awaited = 0;
  std::uint64_t number = 0;
};
[[nodiscard]] std::optional<ExecutorWait> wait_of(ExecutorKey executor);

}  // namespace tandem
