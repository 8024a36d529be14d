#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <tandem/device/graph.hpp>
#include <tandem/symm/handle.hpp>
#include <vector>

#include "base/hash.hpp"

namespace tandem::fused {

// An op is up to some fifteen calls of the driver. A model calls it with the same tensors over and over; the
// group then records what the call enqueues, once, and launches it as one graph from then on. Whether a rank
// does is nobody else's business: the work is the same. See docs/adr/0018.

/// All that makes two calls of a plan enqueue the same work: its words say which plan, and where the call's
/// tensors are and how they lie. Adding to one that has been as long before allocates nothing.
class CallKey {
 public:
  void clear() { words_.clear(); }
  CallKey& add(std::int64_t word) {
    words_.push_back(word);
    return *this;
  }
  CallKey& add(const void* address) {
    return add(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(address)));
  }
  [[nodiscard]] std::uint64_t hash() const {
    Hash hash;
    for (const std::int64_t word : words_) hash.add(word);
    return hash.value();
  }
  friend bool operator==(const CallKey&, const CallKey&) = default;

 private:
  std::vector<std::int64_t> words_;
};

/// A call that came before.
struct CachedGraph {
  CallKey key;
  std::uint64_t hash = 0;
  std::int64_t num_calls = 0;   ///< since it was met, or had to be met anew
  std::uint64_t last_call = 0;  ///< by the clock of its cache
  std::unique_ptr<Graph> graph;
  bool is_refused = false;  ///< it could not be recorded
  // A group keeps its earlier ones too.
  const symm::Handle* workspace = nullptr;
  const symm::Handle* kernel_inbox = nullptr;
  /// The caller's: once it is gone the graph is void, whatever has its address then.
  std::weak_ptr<symm::Handle> in_place;
};

/// A group's calls on one device, as many as there is room for.
class GraphCache {
 public:
  /// One that has its graph keeps its place for at least so many calls without being called.
  static constexpr std::uint64_t kKeptCalls = 8192;

  /// The key of the call at hand, to be filled in.
  [[nodiscard]] CallKey& new_key();
  /// Notes one more call with the key. Null if all its places are taken. Valid until the next note_call().
  /// Allocates nothing for a call that it knows.
  [[nodiscard]] CachedGraph* note_call();

 private:
  static constexpr std::size_t kNumSets = 128;
  static constexpr std::size_t kWays = 8;

  [[nodiscard]] CachedGraph* place_for(std::vector<CachedGraph>& set);

  CallKey key_;
  std::uint64_t clock_ = 0;
  std::array<std::vector<CachedGraph>, kNumSets> sets_;  ///< by the key's hash
};

/// Symmetric memory of a call; null: none of its kind.
struct CallMemory {
  const symm::Handle* workspace = nullptr;
  const symm::Handle* kernel_inbox = nullptr;
  const symm::Handle* in_place = nullptr;
};
/// Whether it has a graph that works with just this memory; one that does not is void, and goes.
[[nodiscard]] bool can_launch(CachedGraph& cached, const CallMemory& memory);

}  // namespace tandem::fused
