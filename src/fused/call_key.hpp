#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <tandem/base/tensor.hpp>
#include <vector>

#include "base/alignment.hpp"
#include "base/hash.hpp"

namespace tandem::fused {

/// What keys of calls add up alike: `Key` has add(word) and add(address).
template <class Key>
class KeyOfTensors {
 public:
  Key& add(const Dims& dims) {
    self().add(dims.size());
    for (const std::int64_t dim : dims) self().add(dim);
    return self();
  }
  Key& add(const TensorView& view) {
    return self().add(view.data).add(static_cast<std::int64_t>(view.dtype)).add(view.sizes).add(view.strides);
  }
  Key& add(const std::optional<TensorView>& view) {
    self().add(std::int64_t{view.has_value()});
    return view ? add(*view) : self();
  }
  Key& add(std::span<const TensorView> views) {
    self().add(static_cast<std::int64_t>(views.size()));
    for (const TensorView& view : views) add(view);
    return self();
  }
  friend bool operator==(const KeyOfTensors&, const KeyOfTensors&) = default;

 private:
  Key& self() { return static_cast<Key&>(*this); }
};

/// All that makes two calls of ops enqueue the same work: where their tensors are and how they lie there, and
/// what was decided about them. Adding to one that has been as long before allocates nothing.
class CallKey : public KeyOfTensors<CallKey> {
 public:
  using KeyOfTensors::add;
  void clear() { words_.clear(); }
  CallKey& add(const void* address) {
    return add(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(address)));
  }
  CallKey& add(std::int64_t word) {
    words_.push_back(word);
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

/// What makes two calls of a plan's products look alike: how their tensors lie, and how they are aligned,
/// wherever they are. Allocates nothing.
class LayoutKey : public KeyOfTensors<LayoutKey> {
 public:
  using KeyOfTensors::add;
  LayoutKey& add(const void* address) { return add(std::int64_t{alignment_of(address)}); }
  LayoutKey& add(std::int64_t word) {
    hash_.add(word);
    return *this;
  }

  [[nodiscard]] std::uint64_t hash() const { return hash_.value(); }

 private:
  Hash hash_;
};

}  // namespace tandem::fused
