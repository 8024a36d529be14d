#pragma once

#include <memory>
#include <mutex>
#include <tandem/device/event.hpp>
#include <vector>

namespace tandem::coll {

/// Memory of groups that ended while ops of theirs were still queued. It goes once those have run: the
/// next group that begins or ends looks. Every function may be called from any thread.
class OrphanedMemory {
 public:
  [[nodiscard]] static OrphanedMemory& of_process();

  /// `last_use`: recorded behind the last op.
  void add(std::unique_ptr<Event> last_use, std::vector<std::shared_ptr<void>> memory);
  void free_unused();

 private:
  struct Orphans {
    std::unique_ptr<Event> last_use;
    std::vector<std::shared_ptr<void>> memory;
  };
  std::mutex mutex_;
  std::vector<Orphans> all_;
};

}  // namespace tandem::coll
