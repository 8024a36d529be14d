#pragma once

#include <chrono>

namespace tandem {

/// The time, on the monotonic clock, at which a wait gives up.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] static Deadline after(std::chrono::nanoseconds duration) {
    const auto now = Clock::now();
    return Deadline(duration > Clock::time_point::max() - now ? Clock::time_point::max() : now + duration);
  }
  /// A deadline that never comes. It has no shorter form, so that it is always written out.
  [[nodiscard]] static Deadline never() { return Deadline(Clock::time_point::max()); }

  [[nodiscard]] bool expired() const { return Clock::now() >= at_; }
  /// The time that is left; zero after the deadline.
  [[nodiscard]] std::chrono::nanoseconds remaining() const {
    const auto now = Clock::now();
    return now >= at_ ? std::chrono::nanoseconds(0) : at_ - now;
  }
  [[nodiscard]] Clock::time_point at() const { return at_; }
  [[nodiscard]] static Deadline earlier(Deadline x, Deadline y) { return x.at_ < y.at_ ? x : y; }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace tandem
