#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/cuda/stream_watch.hpp"

namespace tandem::cuda {

/// The watches of what a stream still has to do, kept alive: a watch owns the memory that its kernels signal
/// and wait in, and that must stay mapped until they have run, also when its handle is gone. Every function
/// may be called from any thread; watches end outside the lock.
class KeptWatches {
 public:
  KeptWatches() { kept_.reserve(kFirstCapacity); }
  KeptWatches(const KeptWatches&) = delete;
  KeptWatches& operator=(const KeptWatches&) = delete;

  void add(const std::shared_ptr<StreamWatch>& watch);
  /// A point in the order of the add() calls.
  [[nodiscard]] std::uint64_t mark() const;
  /// What was added before the mark and not since has run. Allocates nothing.
  void let_go(std::uint64_t mark);
  /// Whether one is kept by this alone.
  [[nodiscard]] bool has_orphan() const;

 private:
  static constexpr std::size_t kFirstCapacity = 16;
  struct Kept {
    std::shared_ptr<StreamWatch> watch;
    std::uint64_t added = 0;
  };
  [[nodiscard]] std::shared_ptr<StreamWatch> take_one(std::uint64_t mark);

  mutable std::mutex mutex_;
  std::vector<Kept> kept_;
  std::uint64_t num_adds_ = 0;
};

}  // namespace tandem::cuda
