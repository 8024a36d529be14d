#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>

namespace tandem::program::host {

/// Numbers of the symbols that an expression names.
using ScalarValues = std::map<std::string, std::int64_t, std::less<>>;

/// An integer expression over symbols: an extent, a loop's index, a peer's rank. A value, free to copy.
class Scalar {
 public:
  explicit Scalar(std::int64_t value = 0);
  /// "i0", "deviceIdx.x", "numberOfStreams".
  [[nodiscard]] static Scalar named(std::string name);

  friend Scalar operator+(const Scalar& x, const Scalar& y) { return Scalar('+', x, y); }
  friend Scalar operator-(const Scalar& x, const Scalar& y) { return Scalar('-', x, y); }
  friend Scalar operator*(const Scalar& x, const Scalar& y) { return Scalar('*', x, y); }
  friend Scalar operator%(const Scalar& x, const Scalar& y) { return Scalar('%', x, y); }
  /// 1 where both have the same value, else 0.
  [[nodiscard]] static Scalar equal(const Scalar& x, const Scalar& y) { return Scalar('=', x, y); }

  /// "( ( i0 * i2 ) * i3 )", "( i6 % numberOfStreams )", "( i7 == 0 )".
  [[nodiscard]] std::string to_string() const;
  /// Errors: kInvalidArgument for a symbol without a value, a remainder by a number below 1, and a result
  ///         beyond 64 bits.
  [[nodiscard]] Result<std::int64_t> evaluate(const ScalarValues& values) const;

 private:
  struct Node;
  Scalar(char operation, const Scalar& x, const Scalar& y);
  explicit Scalar(std::shared_ptr<const Node> node) : node_(std::move(node)) {}

  std::shared_ptr<const Node> node_;
};

}  // namespace tandem::program::host
