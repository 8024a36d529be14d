#pragma once

#include <cstddef>
#include <cstdint>
#include <tandem/base/shape.hpp>

namespace tandem::fused {

/// FNV-1a over 64-bit words: finds a problem's plan, nothing else.
class Hash {
 public:
  template <class T>
  Hash& add(T value) {
    value_ = (value_ ^ static_cast<std::uint64_t>(value)) * 0x100000001b3ULL;
    return *this;
  }
  Hash& add(const Dims& dims) {
    for (const std::int64_t size : dims) add(size);
    return *this;
  }
  [[nodiscard]] std::size_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

}  // namespace tandem::fused
