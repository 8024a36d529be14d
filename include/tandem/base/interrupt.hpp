#pragma once

#include <chrono>
#include <functional>
#include <optional>

namespace tandem {

/// While it lives, waits of this thread for other ranks ask `is_interrupted` about ten times a second. Once
/// it says yes, they end with kPeerLost: a wait in a group poisons it, and a rank that waits in
/// Group::create() leaves. It is for hosts that have to look for signals, as those of an interpreter do.
/// `is_interrupted` is called without locks.
///
/// Stream::synchronize() does not ask: give it a deadline, and ask between two calls. Nor do waits of a
/// stream's work.
class InterruptCheck {
 public:
  /// How long a wait goes on between two questions.
  static constexpr std::chrono::milliseconds kInterval{100};

  explicit InterruptCheck(std::function<bool()> is_interrupted);
  ~InterruptCheck();
  InterruptCheck(const InterruptCheck&) = delete;
  InterruptCheck& operator=(const InterruptCheck&) = delete;

 private:
  friend bool is_interrupted();
  friend bool was_interrupted();
  friend std::chrono::nanoseconds longest_nap();
  bool ask();

  const std::function<bool()> is_interrupted_;
  InterruptCheck* const outer_;
  std::optional<std::chrono::steady_clock::time_point> next_;  ///< none before the first wait
  bool was_interrupted_ = false;
};

}  // namespace tandem
