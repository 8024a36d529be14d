#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <tandem/base/deadline.hpp>
#include <tandem/base/error.hpp>
#include <tandem/cpu/launch.hpp>
#include <vector>

#include "base/home_process.hpp"
#include "device/deferred_frees.hpp"

namespace tandem::cpu {

class WorkQueue;

/// All that was pushed on a queue up to number `sequence`. What events and joins wait for: it stays valid
/// when the stream is gone.
struct Position {
  std::shared_ptr<WorkQueue> queue;  ///< null: nothing to wait for
  std::uint64_t sequence = 0;
};

/// Whether all of it is done.
[[nodiscard]] bool is_done(const Position& position);
/// All that is queued, if anything is.
[[nodiscard]] std::optional<Position> queued_on(const std::shared_ptr<WorkQueue>& queue);

/// The tasks of one stream and how far it is. Tasks are numbered from 1; one thread runs them, any may push
/// and wait. Shared by the stream, its events and whoever waits for them, and never owns a thread.
///
/// A fault makes the tasks behind it be skipped until synchronize() has returned it. Its range of numbers is
/// kept after that: a wait for a position in the range that was enqueued before still fails.
/// Source:  docs/design/device.md
class WorkQueue {
 public:
  /// What becomes of a task behind a fault. Marks and joins run all the same: a mark says when, and a join
  /// keeps the memory that others still work on from being freed too early.
  enum class BehindFault : std::uint8_t { kSkip, kRun };

  explicit WorkQueue(std::chrono::nanoseconds spin, std::uint64_t stream_id = 0)
      : spin_(spin), stream_id_(stream_id) {}

  /// Returns the task's number. Errors: kOutOfMemory when the ring cannot grow; kInvalidArgument in a child
  /// by fork(), where nobody runs it, as of wait() and synchronize().
  [[nodiscard]] Result<std::uint64_t> push(Task&& task, BehindFault behind_fault);
  [[nodiscard]] std::uint64_t last_pushed() const { return pushed_.load(std::memory_order_acquire); }
  [[nodiscard]] bool is_here() const { return home_.is_here(); }
  [[nodiscard]] bool is_done(std::uint64_t sequence) const {
    return done_.load(std::memory_order_acquire) >= sequence;
  }

  /// Whether it is done and not behind a fault that is still to be told: then there is nothing to wait for.
  [[nodiscard]] bool is_settled(std::uint64_t sequence) const;

  /// Errors: kTimeout; the fault that `sequence` is behind, told meanwhile or not.
  [[nodiscard]] Result<void> wait(std::uint64_t sequence, Deadline deadline);
  /// Waits for all; then returns the fault not told yet, if any, and forgets it here and in the queues that
  /// handed it over. Errors: kTimeout; the fault.
  [[nodiscard]] Result<void> synchronize(Deadline deadline);
  /// This queue waited for a position and found it behind a fault: telling the fault here tells it there.
  void add_faulty_source(const Position& position);

  /// The worker's whole life: runs tasks until close() was called and none is left. Returns a fault that
  /// began here and that nobody was told of.
  std::optional<Error> run();
  void close();

 private:
  struct Slot {
    Task task;
    BehindFault behind_fault = BehindFault::kSkip;
  };
  struct Fault {
    std::optional<Error> error;
    std::uint64_t first = 0;  // the task that failed
    std::uint64_t last = 0;   // the last one behind it
    bool untold = false;      // until then `last` grows with done_
  };

  Result<void> grow();
  /// What `sequence` is behind, told or not; null if nothing.
  [[nodiscard]] const Error* fault_before(std::uint64_t sequence) const;
  void sleep_until_pushed(std::unique_lock<std::mutex>& lock);
  bool wait_done(std::unique_lock<std::mutex>& lock, std::uint64_t sequence, Deadline deadline);
  void note_done(std::optional<Error> error);
  void forget_fault();
  void forget_fault_up_to(std::uint64_t sequence, std::vector<Position>& sources);

  const HomeProcess home_;  // of the thread that runs the tasks
  const std::chrono::nanoseconds spin_;
  const std::uint64_t stream_id_;
  mutable std::mutex mutex_;
  std::condition_variable pushed_or_closed_;
  std::condition_variable progressed_;
  // Written under the mutex; read without it by those who spin or only look.
  std::atomic<std::uint64_t> pushed_{0};
  std::atomic<std::uint64_t> done_{0};
  std::atomic<bool> closed_{false};
  bool worker_sleeps_ = false;
  std::uint64_t least_awaited_ = std::numeric_limits<std::uint64_t>::max();

  std::unique_ptr<Slot[]> ring_;
  std::uint64_t ring_capacity_ = 0;  // a power of two
  std::uint64_t ring_begin_ = 0;
  std::uint64_t ring_size_ = 0;

  std::uint64_t last_skippable_ = 0;
  Fault fault_;
  std::vector<Fault> told_faults_;  // the last few before it, for waits that were enqueued before the telling
  std::vector<Position> faulty_sources_;
};

/// Of a CPU device: a service of its own, for the leaves that have memory of their own.
using CpuFrees = DeferredFrees<std::shared_ptr<WorkQueue>>;

}  // namespace tandem::cpu
