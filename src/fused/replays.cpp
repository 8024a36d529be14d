#include "fused/replays.hpp"

#include <algorithm>

namespace tandem::fused {

CallKey& Replays::new_key() {
  key_.clear();
  return key_;
}

Replay* Replays::note_call() {
  const std::uint64_t hash = key_.hash();
  std::vector<Replay>& set = sets_[hash % kNumSets];
  ++clock_;
  const auto known = std::find_if(set.begin(), set.end(), [&](const Replay& replay) {
    return replay.hash == hash && replay.key == key_;
  });
  Replay* replay = known != set.end() ? &*known : nullptr;
  if (replay == nullptr) {
    replay = place_for(set);
    if (replay == nullptr) return nullptr;
    *replay = Replay();
    replay->key = key_;
    replay->hash = hash;
  }
  ++replay->num_calls;
  replay->last_call = clock_;
  return replay;
}

// A model with more calls than there are places would drive them all out one after the other, each just
// before it comes again. So those that are there stay while they are of use, and the others go without.
Replay* Replays::place_for(std::vector<Replay>& set) {
  if (set.size() < kWays) return &set.emplace_back();
  const auto oldest = std::min_element(
      set.begin(), set.end(), [](const Replay& x, const Replay& y) { return x.last_call < y.last_call; });
  const auto is_in_use = [&](const Replay& replay) {
    return replay.graph != nullptr && clock_ - replay.last_call <= kKeptCalls;
  };
  if (!is_in_use(*oldest)) return &*oldest;
  const auto without = std::find_if_not(set.begin(), set.end(), is_in_use);
  return without == set.end() ? nullptr : &*without;
}

bool can_launch(Replay& replay, const symm::Handle* workspace, const symm::Handle* in_place) {
  if (replay.graph == nullptr) return false;
  if (replay.workspace == workspace && replay.in_place.lock().get() == in_place) return true;
  replay.graph.reset();
  replay.num_calls = 1;
  return false;
}

}  // namespace tandem::fused
