#pragma once

#include <cstddef>
#include <iterator>
#include <unordered_map>
#include <vector>

namespace tandem::graph {

class Node;

/// The users of a node, each once, in the order in which they came. A user is found, added and erased in
/// constant time, however many there are: a weight may have thousands. Adding and erasing end iterators.
class Users {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = Node*;
    using difference_type = std::ptrdiff_t;
    using pointer = Node* const*;
    using reference = Node* const&;

    Iterator() = default;
    reference operator*() const { return *at_; }
    Iterator& operator++() {
      ++at_;
      skip_gaps();
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(const Iterator& x, const Iterator& y) { return x.at_ == y.at_; }

   private:
    friend class Users;
    Iterator(pointer at, pointer end) : at_(at), end_(end) { skip_gaps(); }
    void skip_gaps() {
      while (at_ != end_ && *at_ == nullptr) ++at_;
    }
    pointer at_ = nullptr;
    pointer end_ = nullptr;
  };

  [[nodiscard]] Iterator begin() const { return {slots_.data(), slots_.data() + slots_.size()}; }
  [[nodiscard]] Iterator end() const {
    return {slots_.data() + slots_.size(), slots_.data() + slots_.size()};
  }
  [[nodiscard]] std::size_t size() const { return slots_.size() - num_gaps_; }
  [[nodiscard]] bool empty() const { return size() == 0; }
  /// There must be one.
  [[nodiscard]] Node* front() const { return *begin(); }
  [[nodiscard]] bool contains(const Node* user) const { return find(user) < slots_.size(); }

 private:
  friend class Graph;

  /// Adds a user, unless it is there.
  void insert(Node* user);
  /// Whether the user was there.
  bool erase(const Node* user);
  /// Its slot, or one behind the last.
  [[nodiscard]] std::size_t find(const Node* user) const;
  /// Closes the gaps, and numbers the slots of many users.
  void close_gaps();

  std::vector<Node*> slots_;  ///< null: a gap, at most as many as users
  std::size_t num_gaps_ = 0;
  std::unordered_map<const Node*, std::size_t> slot_of_;  ///< empty where there are few
};

}  // namespace tandem::graph
