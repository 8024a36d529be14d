#include "fused/call/graph_cache.hpp"

#include <algorithm>

namespace tandem::fused {

CallKey& GraphCache::new_key() {
  key_.clear();
  return key_;
}

CachedGraph* GraphCache::note_call() {
  const std::uint64_t hash = key_.hash();
  std::vector<CachedGraph>& set = sets_[hash % kNumSets];
  ++clock_;
  const auto known = std::find_if(set.begin(), set.end(), [&](const CachedGraph& cached) {
    return cached.hash == hash && cached.key == key_;
  });
  CachedGraph* cached = known != set.end() ? &*known : nullptr;
  if (cached == nullptr) {
    cached = place_for(set);
    if (cached == nullptr) return nullptr;
    *cached = CachedGraph();
    cached->key = key_;
    cached->hash = hash;
  }
  ++cached->num_calls;
  cached->last_call = clock_;
  return cached;
}

// A model with more calls than there are places would drive them all out one after the other, each just
// before it comes again. So those that are there stay while they are of use, and the others go without.
CachedGraph* GraphCache::place_for(std::vector<CachedGraph>& set) {
  if (set.size() < kWays) return &set.emplace_back();
  const auto oldest =
      std::min_element(set.begin(), set.end(),
                       [](const CachedGraph& x, const CachedGraph& y) { return x.last_call < y.last_call; });
  const auto is_in_use = [&](const CachedGraph& cached) {
    return cached.graph != nullptr && clock_ - cached.last_call <= kKeptCalls;
  };
  if (!is_in_use(*oldest)) return &*oldest;
  const auto without = std::find_if_not(set.begin(), set.end(), is_in_use);
  return without == set.end() ? nullptr : &*without;
}

bool can_launch(CachedGraph& cached, const CallMemory& memory) {
  if (cached.graph == nullptr) return false;
  if (cached.workspace == memory.workspace && cached.kernel_inbox == memory.kernel_inbox &&
      cached.in_place.lock().get() == memory.in_place)
    return true;
  cached.graph.reset();
  cached.num_calls = 1;
  return false;
}

}  // namespace tandem::fused
