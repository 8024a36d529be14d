#pragma once

#include <signal.h>

#include <cerrno>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <tandem/base/error.hpp>
#include <thread>
#include <utility>

#include "base/system_refusal.hpp"

namespace tandem {

/// While it lives the calling thread gets no signal, and threads that it makes never do.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

/// A thread that runs `body`, with the signal mask of the caller. `what` begins the text of the error.
/// Errors: kDriver or kOutOfMemory, with the limit to raise.
template <class Body>
[[nodiscard]] Result<std::thread> make_caller_thread(std::string_view what, Body&& body) {
  int code = 0;
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    code = error.code().value();
  } catch (const std::bad_alloc&) {
    code = ENOMEM;
  }
  // The kernel's answer where new processes get another pid namespace than this one.
  const char* const reason =
      code == EINVAL ? " beside ranks of another pid namespace (unshare needs --fork)" : "";
  return tl::unexpected(system_refusal(std::string(what) + ": no thread" + reason, code));
}

/// A thread of the library that runs `body`. All signals are blocked in it: those that are meant for the
/// program are handled by its own threads.
/// Errors: kDriver or kOutOfMemory, with the limit to raise; the caller's signal mask is as before.
template <class Body>
[[nodiscard]] Result<std::thread> make_thread(std::string_view what, Body&& body) {
  const SignalsBlocked blocked;
  return make_caller_thread(what, std::forward<Body>(body));
}

}  // namespace tandem
