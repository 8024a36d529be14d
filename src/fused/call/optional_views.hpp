#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <tandem/base/tensor.hpp>
#include <tandem/base/tensor_list.hpp>

namespace tandem::fused {

/// What an op may be given one of a product: a list of views, or of views that may be left out. An empty list
/// leaves all out.
class OptionalViews {
 public:
  OptionalViews() = default;
  OptionalViews(const TensorList& all) : all_(all) {}             // NOLINT: a list
  OptionalViews(const OptionalTensorList& some) : some_(some) {}  // NOLINT: a list

  [[nodiscard]] std::size_t size() const { return all_.size() + some_.size(); }
  [[nodiscard]] bool empty() const { return size() == 0; }
  /// Null where it is left out.
  [[nodiscard]] const TensorView* at(int i) const {
    const auto idx = static_cast<std::size_t>(i);
    if (!all_.empty()) return &all_[idx];
    return some_.empty() || !some_[idx] ? nullptr : &*some_[idx];
  }

 private:
  std::span<const TensorView> all_;
  std::span<const std::optional<TensorView>> some_;
};

}  // namespace tandem::fused
