#include "base/executor.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "base/home_process.hpp"

namespace tandem {
namespace {

/// What one thread says of itself.
struct Entry {
  std::atomic<ExecutorKey> key{0};
  std::atomic<ExecutorKey> awaited{0};
  std::atomic<std::uint64_t> num_waits{0};
};

struct Board {
  std::mutex mutex;
  std::vector<const Entry*> entries;

  static Board& of_process() {
    static OnePerProcess<Board> boards;
    return boards.get();
  }
};

ExecutorKey next_thread_key() {
  static std::atomic<ExecutorKey> last{0};
  return 2 * (last.fetch_add(1, std::memory_order_relaxed) + 1);
}

class OwnEntry {
 public:
  OwnEntry() {
    entry_.key = next_thread_key();
    put_on_board();
  }
  ~OwnEntry() {
    Board& board = Board::of_process();
    const std::lock_guard lock(board.mutex);
    std::erase(board.entries, &entry_);
  }
  OwnEntry(const OwnEntry&) = delete;
  OwnEntry& operator=(const OwnEntry&) = delete;
  [[nodiscard]] static Entry& get() {
    thread_local OwnEntry own;
    if (!own.home_.is_here()) own.put_on_board();
    return own.entry_;
  }

 private:
  void put_on_board() {
    home_ = HomeProcess();
    Board& board = Board::of_process();
    const std::lock_guard lock(board.mutex);
    board.entries.push_back(&entry_);
  }

  Entry entry_;
  HomeProcess home_;
};

}  // namespace

ExecutorKey this_executor() {
  return OwnEntry::get().key.load(std::memory_order_relaxed);
}

ExecutorKey executor_of_stream(std::uint64_t stream_id) {
  return 2 * stream_id + 1;  // threads have even keys
}

RunsStream::RunsStream(std::uint64_t stream_id) : before_(this_executor()) {
  OwnEntry::get().key = executor_of_stream(stream_id);
}

RunsStream::~RunsStream() {
  OwnEntry::get().key = before_;
}

WaitsForExecutor::WaitsForExecutor(ExecutorKey executor) {
  Entry& entry = OwnEntry::get();
  entry.num_waits.fetch_add(1, std::memory_order_relaxed);
  entry.awaited.store(executor, std::memory_order_release);
}

WaitsForExecutor::~WaitsForExecutor() {
  OwnEntry::get().awaited.store(0, std::memory_order_release);
}

std::optional<ExecutorWait> wait_of(ExecutorKey executor) {
  Board& board = Board::of_process();
  const std::lock_guard lock(board.mutex);
  for (const Entry* entry : board.entries) {
    if (entry->key.load(std::memory_order_relaxed) != executor) continue;
    const ExecutorKey awaited = entry->awaited.load(std::memory_order_acquire);
    if (awaited == 0) return std::nullopt;
    return ExecutorWait{awaited, entry->num_waits.load(std::memory_order_relaxed)};
  }
  return std::nullopt;
}

}  // namespace tandem
