#include "coll/orphaned_memory.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/home_process.hpp"

namespace tandem::coll {

OrphanedMemory& OrphanedMemory::of_process() {
  // Never destroyed: at the process's end work may still be queued, and drivers may be gone.
  static OnePerProcess<OrphanedMemory> all;
  return all.get();
}

void OrphanedMemory::add(std::unique_ptr<Event> last_use, std::vector<std::shared_ptr<void>> memory) {
  const std::lock_guard lock(mutex_);
  all_.push_back({std::move(last_use), std::move(memory)});
}

void OrphanedMemory::free_unused() {
  std::vector<Orphans> unused;  // goes outside the lock
  const std::lock_guard lock(mutex_);
  const auto used =
      std::partition(all_.begin(), all_.end(), [](const Orphans& one) { return one.last_use->is_done(); });
  unused.assign(std::make_move_iterator(all_.begin()), std::make_move_iterator(used));
  all_.erase(all_.begin(), used);
}

}  // namespace tandem::coll
