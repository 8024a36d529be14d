#include "symm/cpu/link.hpp"

#include <algorithm>
#include <thread>
#include <vector>

#include "base/try.hpp"
#include "device/cpu/word_wait.hpp"
#include "symm/cpu/chunk_wait.hpp"
#include "symm/cpu/group_use.hpp"

namespace tandem::symm::cpu {
namespace {

/// Ranks whose parts have not crossed yet, the one before this rank first.
class Waiting {
 public:
  Waiting(const KernelHandle& handle, const Crossing& crossing) : crossing_(crossing), ranks_(of_thread()) {
    ranks_.clear();
    for (int step = 1; step < handle.world_size; ++step)
      ranks_.push_back((handle.rank - step + handle.world_size) % handle.world_size);
  }
  [[nodiscard]] bool is_empty() const { return ranks_.empty(); }
  [[nodiscard]] std::int64_t first_word() const { return word_of(ranks_.front()); }
  /// The first that has told; -1: none.
  [[nodiscard]] int first_told() const {
    for (const int rank : ranks_) {
      const std::uint32_t seen = tandem::cpu::acquire_word(crossing_.told.words + word_of(rank));
      if (tandem::cpu::has_reached(seen, crossing_.told.expected)) return rank;
    }
    return -1;
  }
  void take(int rank) { std::erase(ranks_, rank); }

 private:
  [[nodiscard]] std::int64_t word_of(int rank) const {
    return rank * crossing_.told.chunks_per_rank + crossing_.told.first;
  }
  /// It grows once: a stream's worker allocates nothing for an op like one before.
  static std::vector<int>& of_thread() {
    thread_local std::vector<int> ranks;
    return ranks;
  }

  const Crossing& crossing_;
  std::vector<int>& ranks_;
};

Result<void> let_cross(Peers& peers, const Crossing& crossing, int source) {
  const GroupUse use(peers);
  TANDEM_TRY(use.check());
  fault_at(peers, "get");
  if (crossing.arrived == nullptr) return wait_for_link(peers, crossing.parts);
  const AwaitedChunks& told = crossing.told;
  const std::int64_t first = source * told.chunks_per_rank;
  for (std::int64_t word = first; word < std::min(first + told.chunks_per_rank, told.count); ++word) {
    TANDEM_TRY(wait_for_link(peers, crossing.parts));
    TANDEM_TRY(write_word(peers, peers.rank, crossing.arrived + word, told.expected));
  }
  return {};
}

}  // namespace

Result<void> wait_for_link(const Peers& peers, int parts) {
  const Deadline end =
      Deadline::after(std::chrono::nanoseconds(peers.group->config().link_delay) / std::max(parts, 1));
  constexpr std::chrono::nanoseconds kLook = std::chrono::milliseconds(10);
  while (!end.expired()) {
    TANDEM_TRY(peers.control->status());
    std::this_thread::sleep_for(std::min(end.remaining(), kLook));
  }
  return {};
}

Result<void> cross_link(const KernelHandle& handle, const Crossing& crossing) {
  Waiting waiting(handle, crossing);
  while (!waiting.is_empty()) {
    int source = -1;
    TANDEM_TRY(await_any_chunk(handle, crossing.told, waiting.first_word(), "await_chunks", [&] {
      source = waiting.first_told();
      return source >= 0;
    }));
    TANDEM_TRY(let_cross(*static_cast<Peers*>(handle.control), crossing, source));
    waiting.take(source);
  }
  return {};
}

}  // namespace tandem::symm::cpu
