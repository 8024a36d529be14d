#pragma once

#include <memory>
#include <mutex>
#include <tandem/base/error.hpp>
#include <vector>

#include "device/cuda/stream_watch.hpp"

namespace tandem::cuda {

using Watches = std::vector<std::weak_ptr<StreamWatch>>;

/// The watches of a stream or an event, each once. A watch that is gone leaves its place to the next one
/// added, so the list stays as long as the number of watches alive, and the repeat path allocates nothing.
/// Every function may be called from any thread; no lock is held while a watch is asked.
class WatchList {
 public:
  WatchList() { places_.reserve(kFirstCapacity); }
  WatchList(const WatchList&) = delete;
  WatchList& operator=(const WatchList&) = delete;

  void add(const std::weak_ptr<StreamWatch>& watch);
  void add(const WatchList& other);
  void clear();
  /// Forgets its own first.
  void assign(const WatchList& other);
  [[nodiscard]] Watches copy() const;

  /// Asks each, so that each notices what happened and can stop its kernels; the answers are dropped.
  void ask_all() const;
  /// Ok, or the error of the first watch that has one.
  [[nodiscard]] Result<void> status() const;
  /// The same, and forgets that watch, and those of the same source: they were told.
  [[nodiscard]] Result<void> take_fault();

 private:
  static constexpr std::size_t kFirstCapacity = 16;

  void add_locked(const std::weak_ptr<StreamWatch>& watch);
  /// Null when there is none at this place; `past_end` says whether there are no more.
  [[nodiscard]] std::shared_ptr<StreamWatch> at(std::size_t idx, bool& past_end) const;

  mutable std::mutex mutex_;
  Watches places_;
};

}  // namespace tandem::cuda
