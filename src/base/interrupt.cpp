#include <utility>

#include "base/interrupts.hpp"

namespace tandem {
namespace {

thread_local InterruptCheck* innermost = nullptr;

}  // namespace

InterruptCheck::InterruptCheck(std::function<bool()> is_interrupted)
    : is_interrupted_(std::move(is_interrupted)), outer_(std::exchange(innermost, this)) {}

InterruptCheck::~InterruptCheck() {
  innermost = outer_;
}

bool InterruptCheck::ask() {
  const auto now = std::chrono::steady_clock::now();
  if (!next_) next_ = now + kInterval;
  if (was_interrupted_ || now < *next_) return was_interrupted_;
  was_interrupted_ = is_interrupted_();
  next_ = now + kInterval;
  return was_interrupted_;
}

bool is_interrupted() {
  return innermost != nullptr && innermost->ask();
}

bool was_interrupted() {
  return innermost != nullptr && innermost->was_interrupted_;
}

std::chrono::nanoseconds longest_nap() {
  return innermost == nullptr ? std::chrono::nanoseconds::max()
                              : std::chrono::nanoseconds(InterruptCheck::kInterval);
}

}  // namespace tandem
