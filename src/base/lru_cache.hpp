#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <list>
#include <unordered_map>
#include <utility>

namespace tandem {

/// At most `limit` values by key: where there is no room for another, the one goes that was used longest ago.
/// Which ones are there follows from the calls alone, so ranks that make the same calls have the same. Not
/// thread-safe.
template <class Key, class Value, class Hash = std::hash<Key>>
class LruCache {
 public:
  explicit LruCache(std::size_t limit) : limit_(std::max<std::size_t>(limit, 1)) {}
  LruCache(const LruCache&) = delete;
  LruCache& operator=(const LruCache&) = delete;

  /// Null if there is none. Counts as a use and allocates nothing. Valid until the next insert().
  [[nodiscard]] Value* find(const Key& key) {
    const auto found = by_key_.find(&key);
    if (found == by_key_.end()) return nullptr;
    by_use_.splice(by_use_.begin(), by_use_, found->second);
    return &found->second->second;
  }
  /// Counts as a use; takes the place of a value with the same key.
  Value& insert(const Key& key, Value value) {
    if (Value* const known = find(key)) return *known = std::move(value);
    if (by_use_.size() == limit_) {
      by_key_.erase(&by_use_.back().first);
      by_use_.pop_back();
    }
    by_use_.emplace_front(key, std::move(value));
    by_key_.emplace(&by_use_.front().first, by_use_.begin());
    return by_use_.front().second;
  }
  [[nodiscard]] std::size_t size() const { return by_use_.size(); }

 private:
  using Entries = std::list<std::pair<const Key, Value>>;
  struct HashPointee {
    std::size_t operator()(const Key* key) const { return Hash()(*key); }
  };
  struct EqualPointees {
    bool operator()(const Key* x, const Key* y) const { return *x == *y; }
  };

  std::size_t limit_;
  Entries by_use_;  ///< the last used first
  std::unordered_map<const Key*, typename Entries::iterator, HashPointee, EqualPointees> by_key_;
};

}  // namespace tandem
