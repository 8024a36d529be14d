#include "trace/moments.hpp"

#include <algorithm>

namespace tandem::trace {
namespace {

/// Whether the event is a collective that ends when all ranks have begun it.
bool is_collective(const Event& event) {
  return event.category == Category::kCopy && event.meeting >= 0;
}

}  // namespace

LastBegins last_begins_of(const Trace& trace) {
  LastBegins last;
  for (const RankEvents& rank : trace) {
    for (const Event& event : rank.events) {
      if (!is_collective(event)) continue;
      const auto [known, is_first] = last.try_emplace({event.call, event.meeting}, event.begin_ns);
      if (!is_first) known->second = std::max(known->second, event.begin_ns);
    }
  }
  return last;
}

std::optional<Event> wait_of(const Event& event, const LastBegins& last_begins) {
  if (event.category == Category::kWait) return event;
  if (!is_collective(event)) return std::nullopt;
  const std::int64_t came_ns = std::min(last_begins.at({event.call, event.meeting}), event.end_ns);
  if (came_ns <= event.begin_ns) return std::nullopt;
  Event wait = event;
  wait.category = Category::kWait;
  wait.wait_for = WaitFor::kAll;
  wait.end_ns = came_ns;
  return wait;
}

Moments::Moments(const std::vector<const Event*>& events, const LastBegins& last_begins) {
  std::vector<Interval> products;
  std::vector<Interval> others;
  std::vector<Interval> copies;
  std::vector<Interval> crossings;
  std::vector<Interval> waits;
  std::vector<Interval> all_waits;
  std::vector<Interval> in_products;
  for (const Event* event : events) {
    Interval work = interval_of(*event);
    if (const auto wait = wait_of(*event, last_begins)) {
      all_waits.push_back(interval_of(*wait));
      if (wait->wait_for != WaitFor::kOwn) waits.push_back(all_waits.back());
      if (wait->within >= 0) in_products.push_back(all_waits.back());
      work.begin = wait->end_ns;
    }
    switch (event->category) {
      case Category::kWait:
        break;
      case Category::kProduct:
        products.push_back(work);
        break;
      case Category::kCopy:
        copies.push_back(work);
        if (event->is_between_hosts) crossings.push_back(work);
        others.push_back(work);
        break;
      case Category::kSum:
      case Category::kCheck:
      case Category::kOther:
        others.push_back(work);
        break;
    }
  }
  product_ = Intervals(std::move(products)).without(Intervals(std::move(in_products)));
  others.insert(others.end(), product_.all().begin(), product_.all().end());
  busy_ = Intervals(std::move(others));
  copies_ = Intervals(std::move(copies));
  crossings_ = Intervals(std::move(crossings));
  waits_ = Intervals(std::move(waits));
  all_waits_ = Intervals(std::move(all_waits));
}

TimeSums Moments::sums() const {
  const auto hidden_us = [&](const Intervals& copies) {
    std::int64_t ns = 0;
    for (const Interval& copy : copies.all()) ns += product_.within(copy);
    return us(ns);
  };
  return {.busy_us = us(busy_.total()),
          .product_us = us(product_.total()),
          .communication_us = us(copies_.total()),
          .hidden_us = hidden_us(copies_),
          .between_hosts_us = us(crossings_.total()),
          .between_hosts_hidden_us = hidden_us(crossings_),
          .waiting_us = us(all_waits_.without(busy_).total())};
}

}  // namespace tandem::trace
