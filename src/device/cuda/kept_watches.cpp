#include "device/cuda/kept_watches.hpp"

#include <algorithm>
#include <utility>

namespace tandem::cuda {

void KeptWatches::add(const std::shared_ptr<StreamWatch>& watch) {
  const std::lock_guard lock(mutex_);
  ++num_adds_;
  const auto found =
      std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.watch == watch; });
  if (found != kept_.end()) {
    found->added = num_adds_;
  } else {
    kept_.push_back({watch, num_adds_});
  }
}

std::uint64_t KeptWatches::mark() const {
  const std::lock_guard lock(mutex_);
  return num_adds_;
}

std::shared_ptr<StreamWatch> KeptWatches::take_one(std::uint64_t mark) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.added <= mark; });
  if (found == kept_.end()) return nullptr;
  std::shared_ptr<StreamWatch> watch = std::move(found->watch);
  if (found != std::prev(kept_.end())) *found = std::move(kept_.back());
  kept_.pop_back();
  return watch;
}

void KeptWatches::let_go(std::uint64_t mark) {
  while (take_one(mark) != nullptr) {
  }
}

bool KeptWatches::has_orphan() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(kept_.begin(), kept_.end(),
                     [](const Kept& kept) { return kept.watch.use_count() == 1; });
}

}  // namespace tandem::cuda
