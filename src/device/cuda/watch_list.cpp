#include "device/cuda/watch_list.hpp"

#include <algorithm>

namespace tandem::cuda {
namespace {

bool are_same(const std::weak_ptr<StreamWatch>& x, const std::weak_ptr<StreamWatch>& y) {
  return !x.owner_before(y) && !y.owner_before(x);
}

}  // namespace

void WatchList::add_locked(const std::weak_ptr<StreamWatch>& watch) {
  if (watch.expired()) return;
  auto free_place = places_.end();
  for (auto place = places_.begin(); place != places_.end(); ++place) {
    if (are_same(*place, watch)) return;
    if (free_place == places_.end() && place->expired()) free_place = place;
  }
  if (free_place == places_.end()) {
    places_.push_back(watch);
  } else {
    *free_place = watch;
  }
}

void WatchList::add(const std::weak_ptr<StreamWatch>& watch) {
  const std::lock_guard lock(mutex_);
  add_locked(watch);
}

void WatchList::add(const WatchList& other) {
  if (this == &other) return;
  const std::scoped_lock lock(mutex_, other.mutex_);  // two streams may wait for each other in two threads
  for (const auto& watch : other.places_) add_locked(watch);
}

void WatchList::assign(const WatchList& other) {
  if (this == &other) return;
  const std::scoped_lock lock(mutex_, other.mutex_);
  places_ = other.places_;
}

void WatchList::clear() {
  const std::lock_guard lock(mutex_);
  places_.clear();
}

Watches WatchList::copy() const {
  const std::lock_guard lock(mutex_);
  return places_;
}

std::shared_ptr<StreamWatch> WatchList::at(std::size_t idx, bool& past_end) const {
  const std::lock_guard lock(mutex_);
  past_end = idx >= places_.size();
  return past_end ? nullptr : places_[idx].lock();
}

void WatchList::ask_all() const {
  bool past_end = false;
  for (std::size_t i = 0; !past_end; ++i) {
    if (const auto watch = at(i, past_end)) static_cast<void>(watch->status());
  }
}

Result<void> WatchList::status() const {
  bool past_end = false;
  for (std::size_t i = 0; !past_end; ++i) {
    const auto watch = at(i, past_end);
    if (!watch) continue;
    if (auto result = watch->status(); !result) return result;
  }
  return {};
}

Result<void> WatchList::take_fault() {
  bool past_end = false;
  for (std::size_t i = 0; !past_end; ++i) {
    const auto watch = at(i, past_end);
    if (!watch) continue;
    auto result = watch->status();
    if (result) continue;
    std::vector<std::shared_ptr<StreamWatch>> looked_at;  // the last to hold one lets it go without the lock
    const std::lock_guard lock(mutex_);
    for (auto& place : places_) {
      looked_at.push_back(place.lock());
      if (looked_at.back() && looked_at.back()->source() == watch->source()) place.reset();
    }
    return result;
  }
  return {};
}

}  // namespace tandem::cuda
