#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace tandem {

/// The largest number of dimensions of a tensor.
inline constexpr int kMaxDims = 8;

/// Sizes or strides of up to kMaxDims dimensions. It is a value and allocates nothing.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values) : Dims(std::span(values.begin(), values.size())) {}
  explicit Dims(std::span<const std::int64_t> values) {
    for (const std::int64_t value : values) push_back(value);
  }

  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::int64_t operator[](int idx) const {
    assert(idx >= 0 && idx < size_);
    return values_[static_cast<std::size_t>(idx)];
  }
  [[nodiscard]] std::int64_t& operator[](int idx) {
    assert(idx >= 0 && idx < size_);
    return values_[static_cast<std::size_t>(idx)];
  }
  [[nodiscard]] std::int64_t back() const { return (*this)[size_ - 1]; }
  [[nodiscard]] const std::int64_t* begin() const { return values_.data(); }
  [[nodiscard]] const std::int64_t* end() const { return values_.data() + size_; }

  /// Appends a value. More than kMaxDims values are a caller's bug: check the count of untrusted input first.
  void push_back(std::int64_t value) {
    assert(size_ < kMaxDims);
    values_[static_cast<std::size_t>(size_++)] = value;
  }
  /// Removes and returns the value at `idx`.
  std::int64_t erase(int idx);
  /// Inserts `value` before `idx`.
  void insert(int idx, std::int64_t value);

  friend bool operator==(const Dims& x, const Dims& y) {
    if (x.size_ != y.size_) return false;
    for (int i = 0; i < x.size_; ++i) {
      if (x[i] != y[i]) return false;
    }
    return true;
  }

 private:
  std::array<std::int64_t, kMaxDims> values_{};
  int size_ = 0;
};

/// "[8, 64, 32]".
[[nodiscard]] std::string to_string(const Dims& dims);

/// The product of all sizes; 1 if there are none.
[[nodiscard]] std::int64_t numel(const Dims& sizes);

/// The strides of a row-major tensor.
/// Units:   elements.
[[nodiscard]] Dims contiguous_strides(const Dims& sizes);

}  // namespace tandem
