#pragma once

#include <cerrno>
#include <chrono>
#include <thread>

namespace tandem {

/// Repeats a system call that a signal has interrupted. `call()` returns -1 with errno set if it fails.
template <class Call>
auto uninterrupted(Call call) {
  for (;;) {
    const auto outcome = call();
    if (outcome != -1 || errno != EINTR) return outcome;
  }
}

/// The same, and repeats a call for which the kernel had no memory, for 100 ms: a shortage may pass.
template <class Call>
auto outlasting_shortage(Call call) {
  for (int attempt = 0;; ++attempt) {
    const auto outcome = uninterrupted(call);
    if (outcome != -1 || (errno != ENOMEM && errno != ENOBUFS) || attempt == 100) return outcome;
    const int code = errno;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    errno = code;
  }
}

}  // namespace tandem
