#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <tandem/base/tensor.hpp>
#include <vector>

#include "fused/hash.hpp"

namespace tandem::fused {

/// All that makes two calls of ops enqueue the same work: where their tensors are and how they lie there, and
/// what was decided about them. Adding to one that has been as long before allocates nothing.
class CallKey {
 public:
  void clear() { words_.clear(); }
  CallKey& add(const void* address) {
    return add(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(address)));
  }
  CallKey& add(std::int64_t word) {
    words_.push_back(word);
    return *this;
  }
  CallKey& add(const Dims& dims) {
    add(dims.size());
    for (const std::int64_t dim : dims) add(dim);
    return *this;
  }
  CallKey& add(const TensorView& view) {
    return add(view.data).add(static_cast<std::int64_t>(view.dtype)).add(view.sizes).add(view.strides);
  }
  CallKey& add(const std::optional<TensorView>& view) {
    add(std::int64_t{view.has_value()});
    return view ? add(*view) : *this;
  }
  CallKey& add(std::span<const TensorView> views) {
    add(static_cast<std::int64_t>(views.size()));
    for (const TensorView& view : views) add(view);
    return *this;
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

}  // namespace tandem::fused
