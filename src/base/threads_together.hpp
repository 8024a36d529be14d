#pragma once

#include <future>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/make_thread.hpp"
#include "base/try.hpp"

namespace tandem {

/// Threads that begin once all of them are made: otherwise some would wait for others that never come.
class ThreadsTogether {
 public:
  ThreadsTogether() = default;
  /// Without run() none begins.
  ~ThreadsTogether() { end(false); }
  ThreadsTogether(const ThreadsTogether&) = delete;
  ThreadsTogether& operator=(const ThreadsTogether&) = delete;

  /// One more, which keeps the caller's signal mask and affinity. `what` begins the text of the error.
  template <class Body>
  [[nodiscard]] Result<void> add(std::string_view what, Body body) {
    TANDEM_ASSIGN(auto thread,
                  make_caller_thread(what, [body = std::move(body), may_begin = may_begin_]() mutable {
                    if (may_begin.get()) body();
                  }));
    threads_.push_back(std::move(thread));
    return {};
  }

  /// Lets all begin, and returns behind the last of them.
  void run() { end(true); }

 private:
  void end(bool may_begin) {
    if (threads_.empty()) return;
    all_there_.set_value(may_begin);
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  std::promise<bool> all_there_;
  std::shared_future<bool> may_begin_ = all_there_.get_future().share();
  std::vector<std::thread> threads_;
};

}  // namespace tandem
