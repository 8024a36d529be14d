#include "symm/anchor.hpp"

namespace tandem::symm {
namespace {

// The type of the deleter is the mark by which a type-erased owner is recognised.
struct AnchorDeleter {
  Anchor* anchor;
  void operator()(Anchor* pointer) const { delete pointer; }
};

}  // namespace

std::shared_ptr<Anchor> Anchor::make(std::shared_ptr<Block> block) {
  auto anchor = std::make_unique<Anchor>(std::move(block));
  Anchor* pointer = anchor.get();
  return {anchor.release(), AnchorDeleter{pointer}};
}

std::shared_ptr<Anchor> Anchor::of(const Tensor& tensor) {
  const auto* deleter = std::get_deleter<AnchorDeleter>(tensor.owner());
  return deleter == nullptr ? nullptr : std::shared_ptr<Anchor>(tensor.owner(), deleter->anchor);
}

void Anchor::keep(const void* table, std::shared_ptr<Handle> handle) {
  const std::lock_guard lock(mutex_);
  kept_.push_back({table, std::move(handle)});
}

void Anchor::release(const void* table) {
  std::vector<Kept> released;  // handles end outside the lock: they may unmap
  const std::lock_guard lock(mutex_);
  std::vector<Kept> remaining;
  for (Kept& kept : kept_) (kept.table == table ? released : remaining).push_back(std::move(kept));
  kept_ = std::move(remaining);
}

}  // namespace tandem::symm
