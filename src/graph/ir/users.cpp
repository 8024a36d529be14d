#include <tandem/graph/users.hpp>

#include <algorithm>

namespace tandem::graph {
namespace {

/// More than one looks through for each of them.
constexpr std::size_t kMany = 32;

}  // namespace

std::size_t Users::find(const Node* user) const {
  if (slot_of_.empty())
    return static_cast<std::size_t>(std::find(slots_.begin(), slots_.end(), user) - slots_.begin());
  const auto found = slot_of_.find(user);
  return found == slot_of_.end() ? slots_.size() : found->second;
}

void Users::insert(Node* user) {
  if (contains(user)) return;
  slots_.push_back(user);
  if (!slot_of_.empty()) {
    slot_of_.emplace(user, slots_.size() - 1);
  } else if (slots_.size() > kMany) {
    close_gaps();
  }
}

bool Users::erase(const Node* user) {
  const std::size_t slot = find(user);
  if (slot == slots_.size()) return false;
  slots_[slot] = nullptr;
  ++num_gaps_;
  slot_of_.erase(user);
  if (slot_of_.empty() || num_gaps_ > size()) close_gaps();
  return true;
}

void Users::close_gaps() {
  std::erase(slots_, nullptr);
  num_gaps_ = 0;
  slot_of_.clear();
  if (slots_.size() <= kMany) return;
  for (std::size_t i = 0; i < slots_.size(); ++i) slot_of_.emplace(slots_[i], i);
}

}  // namespace tandem::graph
