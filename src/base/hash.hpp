#pragma once

#include <cstddef>
#include <cstdint>
#include <tandem/base/shape.hpp>

namespace tandem {

/// FNV-1a over 64-bit words: for look-ups of problems and calls, nothing else.
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
  /// Mixed once more: words that differ in their middle bits, as addresses do, reach no lower ones.
  [[nodiscard]] std::size_t value() const { return (value_ ^ value_ >> 32) * 0x9e3779b97f4a7c15ULL >> 20; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

}  // namespace tandem
