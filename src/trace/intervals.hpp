#pragma once

#include <cstdint>
#include <vector>

namespace tandem::trace {

/// What ns are in us.
[[nodiscard]] constexpr double us(std::int64_t ns) {
  constexpr double kNsPerUs = 1000;
  return static_cast<double>(ns) / kNsPerUs;
}

/// [begin, end) of a clock, in ns.
struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t length() const { return end - begin; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

/// A set of moments: disjoint intervals with gaps between them, in order.
class Intervals {
 public:
  Intervals() = default;
  /// Of intervals in any order, which may overlap or be empty.
  explicit Intervals(std::vector<Interval> any);

  [[nodiscard]] const std::vector<Interval>& all() const { return all_; }
  [[nodiscard]] std::int64_t total() const;
  /// How much of one interval is in the set.
  [[nodiscard]] std::int64_t within(const Interval& part) const;
  [[nodiscard]] Intervals without(const Intervals& other) const;
  /// The gap in the set that has most in common with `part`; empty if none has anything. Before the first
  /// interval and behind the last one there is a gap as far as `part` reaches.
  [[nodiscard]] Interval largest_gap(const Interval& part) const;

 private:
  /// The first interval that ends behind `at`.
  [[nodiscard]] std::vector<Interval>::const_iterator first_behind(std::int64_t at) const;
  std::vector<Interval> all_;
};

/// What two intervals have in common; of length 0 if nothing.
[[nodiscard]] Interval common(const Interval& a, const Interval& b);

}  // namespace tandem::trace
