#include "trace/intervals.hpp"

#include <algorithm>

namespace tandem::trace {

Interval common(const Interval& a, const Interval& b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

Intervals::Intervals(std::vector<Interval> any) {
  std::sort(any.begin(), any.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  for (const Interval& one : any) {
    if (one.length() <= 0) continue;
    if (!all_.empty() && one.begin <= all_.back().end) {
      all_.back().end = std::max(all_.back().end, one.end);
    } else {
      all_.push_back(one);
    }
  }
}

std::int64_t Intervals::total() const {
  std::int64_t sum = 0;
  for (const Interval& one : all_) sum += one.length();
  return sum;
}

std::vector<Interval>::const_iterator Intervals::first_behind(std::int64_t at) const {
  return std::lower_bound(all_.begin(), all_.end(), at,
                          [](const Interval& one, std::int64_t moment) { return one.end <= moment; });
}

std::int64_t Intervals::within(const Interval& part) const {
  std::int64_t sum = 0;
  for (auto one = first_behind(part.begin); one != all_.end() && one->begin < part.end; ++one)
    sum += common(*one, part).length();
  return sum;
}

Intervals Intervals::without(const Intervals& other) const {
  Intervals left;
  for (Interval one : all_) {
    for (auto hole = other.first_behind(one.begin); hole != other.all_.end() && hole->begin < one.end;
         ++hole) {
      if (hole->begin > one.begin) left.all_.push_back({one.begin, hole->begin});
      one.begin = std::min(one.end, hole->end);
    }
    if (one.length() > 0) left.all_.push_back(one);
  }
  return left;
}

Interval Intervals::largest_gap(const Interval& part) const {
  Interval largest{part.begin, part.begin};
  std::int64_t most = 0;
  auto next = first_behind(part.begin);
  std::int64_t begin = next == all_.begin() ? part.begin : std::prev(next)->end;
  for (;; ++next) {
    const bool is_last = next == all_.end() || next->begin >= part.end;
    const std::int64_t end = next == all_.end() ? part.end : next->begin;
    if (const std::int64_t shared = common({begin, end}, part).length(); shared > most) {
      most = shared;
      largest = {begin, end};
    }
    if (is_last) return largest;
    begin = next->end;
  }
}

}  // namespace tandem::trace
