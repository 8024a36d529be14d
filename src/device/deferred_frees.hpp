#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/home_process.hpp"

namespace tandem {

/// Memory of one device that nobody owns any more while its streams still have work that may use it. It is
/// freed once what was queued at that time has run, at a later call of this class; nobody waits for it.
///
/// `Queue` is what a device knows of a stream: `queued_on(queue)` is an optional mark behind all that is
/// queued, none if everything has run, and `is_done(mark)` asks whether it has. Shared by the device, its
/// streams and its memory: whoever of them goes last frees what is left, and by then every stream has
/// finished. Thread-safe.
template <class Queue>
class DeferredFrees : public std::enable_shared_from_this<DeferredFrees<Queue>> {
 public:
  /// How to free something: `free(object, owner.get())`, which must not throw.
  struct Memory {
    void* object = nullptr;
    void (*free)(void* object, void* owner) = nullptr;
    std::shared_ptr<void> owner = {};  ///< of what it is a piece of, if that has to stay
  };

  DeferredFrees() = default;
  DeferredFrees(const DeferredFrees&) = delete;
  DeferredFrees& operator=(const DeferredFrees&) = delete;
  ~DeferredFrees() {
    if (!home_.is_here()) return;
    for (const Waiting& one : waiting_) free_now(one.memory);
  }

  // In a child by fork() nothing is freed, and no lock taken: streams of the parent hold it, and use the
  // memory.

  void add_queue(Queue queue) {
    const std::lock_guard lock(mutex_);
    queues_.push_back(std::move(queue));
  }
  /// The stream has finished its work.
  void remove_queue(const Queue& queue) {
    const std::lock_guard lock(mutex_);
    queues_.erase(std::remove(queues_.begin(), queues_.end(), queue), queues_.end());
  }
  [[nodiscard]] std::vector<Queue> queues() const {
    if (!home_.is_here()) return {};
    const std::lock_guard lock(mutex_);
    return queues_;
  }

  /// Frees it now if no stream has work queued, else later. Called by deleters: where there is no memory to
  /// note it down, it is never freed.
  void free(const Memory& memory) noexcept {
    if (!home_.is_here()) return;
    if (!defer(memory)) free_now(memory);
    free_unused();
  }
  /// Frees what waited for work that has run since.
  void free_unused() noexcept {
    if (!home_.is_here()) return;
    while (const std::optional<Memory> unused = take_unused()) free_now(*unused);
  }
  /// Pieces of memory that wait.
  [[nodiscard]] std::size_t num_waiting() const {
    const std::lock_guard lock(mutex_);
    return waiting_.size();
  }

 private:
  using Mark = typename decltype(queued_on(std::declval<const Queue&>()))::value_type;
  struct Waiting {
    Memory memory;
    std::vector<Mark> behind;
  };

  static void free_now(const Memory& memory) { memory.free(memory.object, memory.owner.get()); }
  bool defer(const Memory& memory) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      std::vector<Mark> behind;
      for (const Queue& queue : queues_) {
        if (auto mark = queued_on(queue)) behind.push_back(*std::move(mark));
      }
      if (behind.empty()) return false;
      waiting_.push_back({memory, std::move(behind)});
    } catch (const std::bad_alloc&) {
    }
    return true;
  }
  // In the order in which they came: a later one waits for all that an earlier one waits for, or more.
  std::optional<Memory> take_unused() noexcept {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty()) return std::nullopt;
    std::vector<Mark>& behind = waiting_.front().behind;
    while (!behind.empty() && is_done(behind.back())) behind.pop_back();
    if (!behind.empty()) return std::nullopt;
    Memory memory = std::move(waiting_.front().memory);
    waiting_.pop_front();
    return memory;
  }

  const HomeProcess home_;
  mutable std::mutex mutex_;
  std::vector<Queue> queues_;
  std::deque<Waiting> waiting_;
};

}  // namespace tandem
