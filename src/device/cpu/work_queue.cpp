#include "device/cpu/work_queue.hpp"

#include <algorithm>
#include <exception>
#include <new>

#include "base/executor.hpp"
#include "base/format.hpp"

namespace tandem::cpu {
namespace {

constexpr std::string_view kStream = "the stream of cpu:0";
constexpr std::uint64_t kFirstCapacity = 64;
constexpr std::uint64_t kNobodyWaits = std::numeric_limits<std::uint64_t>::max();

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Sleeping and being woken costs both sides several microseconds; a short look saves that when work is about
/// to come.
template <class Ready>
void spin_until(Ready ready, std::chrono::nanoseconds spin) {
  if (spin.count() == 0 || ready()) return;
  const auto end = Deadline::after(spin);
  while (!ready() && !end.expired()) pause_core();
}

std::optional<Error> run_task(Task& task) {
  try {
    if (Result<void> result = task(); !result) return std::move(result).error();
  } catch (const std::exception& exception) {
    return Error(ErrorCode::kInternal, fmt::format("a task of a stream threw: {}", exception.what()));
  } catch (...) {
    return Error(ErrorCode::kInternal, "a task of a stream threw something that is no std::exception");
  }
  return std::nullopt;
}

}  // namespace

bool is_done(const Position& position) {
  return !position.queue || position.queue->is_done(position.sequence);
}

std::optional<Position> queued_on(const std::shared_ptr<WorkQueue>& queue) {
  const std::uint64_t last = queue->last_pushed();
  if (queue->is_done(last)) return std::nullopt;
  return Position{queue, last};
}

Result<std::uint64_t> WorkQueue::push(Task&& task, BehindFault behind_fault) {
  if (!home_.is_here()) return tl::unexpected<Error>(home_.refusal(kStream));
  std::uint64_t sequence = 0;
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (ring_size_ == ring_capacity_) {
      if (auto grown = grow(); !grown) return tl::unexpected(std::move(grown).error());
    }
    Slot& slot = ring_[(ring_begin_ + ring_size_++) & (ring_capacity_ - 1)];
    slot.task = std::move(task);
    slot.behind_fault = behind_fault;
    sequence = last_pushed() + 1;
    if (behind_fault == BehindFault::kSkip) last_skippable_ = sequence;
    pushed_.store(sequence, std::memory_order_release);
    wake = std::exchange(worker_sleeps_, false);
  }
  if (wake) pushed_or_closed_.notify_one();
  return sequence;
}

Result<void> WorkQueue::grow() {
  const std::uint64_t capacity = std::max(kFirstCapacity, 2 * ring_capacity_);
  std::unique_ptr<Slot[]> larger(new (std::nothrow) Slot[capacity]);
  if (!larger) {
    return failf(ErrorCode::kOutOfMemory,
                 "stream: no memory for a queue of {} tasks ({} bytes); synchronize more often", capacity,
                 capacity * sizeof(Slot));
  }
  for (std::uint64_t i = 0; i < ring_size_; ++i) {
    larger[i] = std::move(ring_[(ring_begin_ + i) & (ring_capacity_ - 1)]);
  }
  ring_ = std::move(larger);
  ring_capacity_ = capacity;
  ring_begin_ = 0;
  return {};
}

std::optional<Error> WorkQueue::run() {
  const RunsStream runs(stream_id_);
  std::unique_lock lock(mutex_);
  for (;;) {
    if (ring_size_ == 0) {
      if (closed_) break;
      sleep_until_pushed(lock);
      continue;
    }
    Slot& slot = ring_[ring_begin_++ & (ring_capacity_ - 1)];
    --ring_size_;
    const bool skip = fault_.untold && slot.behind_fault == BehindFault::kSkip;
    std::optional<Error> error;
    {
      // Out of the ring, which may grow meanwhile. What it captured is gone before it counts as done.
      Task task = std::move(slot.task);
      lock.unlock();
      if (!skip) error = run_task(task);
    }
    lock.lock();
    note_done(std::move(error));
  }
  std::optional<Error> lost;
  if (fault_.untold && faulty_sources_.empty()) lost = fault_.error;
  faulty_sources_.clear();  // two queues may name each other
  return lost;
}

void WorkQueue::sleep_until_pushed(std::unique_lock<std::mutex>& lock) {
  const std::uint64_t seen = last_pushed();
  lock.unlock();
  spin_until([&] { return last_pushed() != seen || closed_; }, spin_);
  lock.lock();
  while (ring_size_ == 0 && !closed_) {
    worker_sleeps_ = true;
    pushed_or_closed_.wait(lock);
  }
  worker_sleeps_ = false;
}

void WorkQueue::note_done(std::optional<Error> error) {
  const std::uint64_t sequence = done_.load(std::memory_order_relaxed) + 1;
  if (error && !fault_.untold) {
    constexpr std::size_t kMostTold = 64;
    if (told_faults_.size() == kMostTold) told_faults_.erase(told_faults_.begin());
    if (fault_.error) told_faults_.push_back(std::move(fault_));
    fault_ = {std::move(error), sequence, sequence, true};
  }
  if (fault_.untold) fault_.last = sequence;
  done_.store(sequence, std::memory_order_release);
  if (sequence >= least_awaited_) {
    least_awaited_ = kNobodyWaits;
    progressed_.notify_all();
  }
}

bool WorkQueue::wait_done(std::unique_lock<std::mutex>& lock, std::uint64_t sequence, Deadline deadline) {
  // Who waits without a deadline does nothing else until then.
  const bool is_endless = deadline.at() == Deadline::Clock::time_point::max();
  std::optional<WaitsForExecutor> waits;
  while (!is_done(sequence)) {
    if (is_endless && !waits) waits.emplace(executor_of_stream(stream_id_));
    // Waking everybody for every task would slow the worker down: it does so at the least number awaited.
    least_awaited_ = std::min(least_awaited_, sequence);
    if (is_endless) {
      progressed_.wait(lock);
    } else if (deadline.expired()) {
      return false;
    } else {
      progressed_.wait_until(lock, deadline.at());
    }
  }
  return true;
}

Result<void> WorkQueue::wait(std::uint64_t sequence, Deadline deadline) {
  if (!home_.is_here()) return tl::unexpected<Error>(home_.refusal(kStream));
  spin_until([&] { return is_done(sequence); }, spin_);
  std::unique_lock lock(mutex_);
  if (!wait_done(lock, sequence, deadline)) {
    return failf(ErrorCode::kTimeout,
                 "event: the deadline passed with {} of the tasks before the mark not done",
                 sequence - done_.load());
  }
  if (const Error* error = fault_before(sequence)) return tl::unexpected(*error);
  return {};
}

const Error* WorkQueue::fault_before(std::uint64_t sequence) const {
  const auto holds = [&](const Fault& fault) {
    return fault.error && sequence >= fault.first && sequence <= fault.last;
  };
  if (holds(fault_)) return &*fault_.error;
  const auto told = std::find_if(told_faults_.begin(), told_faults_.end(), holds);
  return told == told_faults_.end() ? nullptr : &*told->error;
}

bool WorkQueue::is_settled(std::uint64_t sequence) const {
  if (!is_done(sequence)) return false;
  const std::lock_guard lock(mutex_);
  return !(fault_.untold && sequence >= fault_.first);
}

Result<void> WorkQueue::synchronize(Deadline deadline) {
  if (!home_.is_here()) return tl::unexpected<Error>(home_.refusal(kStream));
  const std::uint64_t sequence = last_pushed();
  spin_until([&] { return is_done(sequence); }, spin_);
  std::unique_lock lock(mutex_);
  if (!wait_done(lock, sequence, deadline)) {
    return failf(ErrorCode::kTimeout,
                 "synchronize: the deadline passed with {} of the stream's tasks not done",
                 last_pushed() - done_.load());
  }
  if (!fault_.untold) return {};
  Error error = *fault_.error;
  std::vector<Position> sources = std::move(faulty_sources_);
  forget_fault();
  lock.unlock();
  while (!sources.empty()) {
    const Position source = std::move(sources.back());
    sources.pop_back();
    source.queue->forget_fault_up_to(source.sequence, sources);
  }
  return tl::unexpected(std::move(error));
}

void WorkQueue::forget_fault() {
  fault_.untold = false;
  faulty_sources_.clear();
}

void WorkQueue::forget_fault_up_to(std::uint64_t sequence, std::vector<Position>& sources) {
  const std::lock_guard lock(mutex_);
  // Work skipped after `sequence` is known to nobody yet: then the fault stays for this stream's own
  // synchronize().
  if (!fault_.untold || last_skippable_ > sequence) return;
  sources.insert(sources.end(), faulty_sources_.begin(), faulty_sources_.end());
  forget_fault();
}

void WorkQueue::add_faulty_source(const Position& position) {
  const std::lock_guard lock(mutex_);
  for (Position& source : faulty_sources_) {
    if (source.queue != position.queue) continue;
    source.sequence = std::max(source.sequence, position.sequence);
    return;
  }
  faulty_sources_.push_back(position);
}

void WorkQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    worker_sleeps_ = false;
  }
  pushed_or_closed_.notify_one();
}

}  // namespace tandem::cpu
