#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <tandem/symm/handle.hpp>
#include <vector>

namespace tandem::harness {

/// The middle value; the mean of the two middle ones for an even number; 0 for none.
[[nodiscard]] double median(std::vector<double> values);

/// Microseconds that a monotonic clock has counted.
[[nodiscard]] double now_us();

/// Microseconds that the calling thread has worked. While others have its core it stands still.
[[nodiscard]] double thread_cpu_us();

/// Times of calls in this process, one after the other.
struct CallTimes {
  std::vector<double> us;
  /// Of the processor, all threads of the process together. Where others use the machine it says more of one
  /// thread's work than the clock does: it does not run while they have the core.
  std::vector<double> cpu_us;

  void time(const std::function<void()>& call);
};

/// Times work that all ranks run together, on one rank. The host's clock on CPUs; on GPUs events on the
/// stream, behind a cold L2, a pause in which the host enqueues, and a barrier on the device, so that neither
/// the host's cost nor the ranks' skew is in the figure.
class Stopwatch {
 public:
  /// Of what is enqueued on `stream`. The three must outlive it.
  Stopwatch(Device& device, Group& group, Stream& stream);
  /// From now on `work` is done so many times before each timed call, so that a GPU's clocks, power and links
  /// are those under load. No effect on CPUs.
  void load_before(std::function<void()> work, int times);
  /// What comes before every timed call: the ranks meet, and on GPUs the load, a cold L2 and a pause. For
  /// callers who set marks of their own in what they enqueue behind it.
  void stand_ready() const;
  /// Of one call's work. Blocks until that is done.
  [[nodiscard]] double time_us(const std::function<void()>& enqueue) const;
  /// How long a call keeps the host that makes one behind the other while the GPU has work, the median of a
  /// burst behind its first calls; null on CPUs, whose cores do the work as well.
  [[nodiscard]] std::optional<double> host_us(const std::function<void()>& enqueue) const;

 private:
  [[nodiscard]] double time_on_host_us(const std::function<void()>& enqueue) const;
  /// All ranks' streams begin what comes behind it together, and hosts have time to enqueue that.
  void pause() const;

  /// Blocks until every rank is here.
  void meet() const;

  Group& group_;
  Stream& stream_;
  std::function<void()> load_;
  int num_loads_ = 0;
  Tensor larger_than_cache_;
  std::shared_ptr<symm::Handle> meeting_;
  std::unique_ptr<Event> start_;
  std::unique_ptr<Event> end_;
};

/// Work recorded once and replayed by run().
class Replay {
 public:
  /// `stream` must outlive it.
  Replay(Stream& stream, const std::function<void()>& enqueue);
  void run() const;

 private:
  Stream& stream_;
  std::unique_ptr<Graph> graph_;
};

}  // namespace tandem::harness
