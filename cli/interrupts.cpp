#include "interrupts.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/make_thread.hpp"
#include "failure.hpp"
#include "io/whole_file.hpp"
#include "outputs.hpp"

namespace tandem::cli {
namespace {

// Sent to the own process to end the signal thread; never sent by a user.
constexpr int kStopSignal = SIGUSR2;

/// How long a process that is to end waits for what it is doing.
constexpr std::chrono::seconds kPatience{2};

sigset_t awaited_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, kStopSignal);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    // A blocked signal would be queued even where the caller ignores it.
    const bool is_ignored = ::sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN;
    if (!is_ignored) sigaddset(&set, signal);
  }
  return set;
}

std::string text_of(int signal, const std::string& kept) {
  return fmt::format("interrupted by signal {} ({}); {}", signal, ::strsignal(signal), kept);
}

/// Whether some bytes can be written without waiting for a reader.
bool can_write_at_once(int fd) {
  pollfd polled{fd, POLLOUT, 0};
  return ::poll(&polled, 1, 0) == 1 && (polled.revents & POLLOUT) != 0;
}

constexpr std::size_t kMostBytesAtOnce = 4096;  // a pipe that takes any takes these

/// Ends the process whatever its other threads wait for: a pipe that nobody empties, a lock, a disk.
[[noreturn]] void end_process(int signal) {
  const std::string kept = kept_at_the_end(kPatience);
  io::WholeFile::remove_siblings();
  if (can_write_at_once(STDOUT_FILENO) && ::ftrylockfile(stdout) == 0) ::fflush_unlocked(stdout);
  say_at_once(fmt::format("tandem: {:.{}}\n", text_of(signal, kept), kMostBytesAtOnce - 100));
  std::_Exit(kInterrupted + signal);
}

}  // namespace

class Interrupts::Impl {
 public:
  Impl() : set_(awaited_signals()) {
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
    auto thread = make_caller_thread("waiting for signals", [this] { wait_for_signals(); });
    if (!thread) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    thread_ = take(std::move(thread));
  }
  ~Impl() {
    stopping_ = true;
    pthread_kill(thread_.native_handle(), kStopSignal);
    thread_.join();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

  void be_orderly(bool is_orderly) {
    const std::lock_guard lock(mutex_);
    is_orderly_ = is_orderly;
  }
  void on_signal(std::function<void()> end) {
    const std::lock_guard lock(mutex_);
    end_ = std::move(end);
    if (end_ && signal_ != 0) end_();
  }
  [[nodiscard]] int signal() const { return signal_; }

 private:
  void wait_for_signals() {
    for (;;) {
      int signal = 0;
      sigwait(&set_, &signal);
      if (signal == kStopSignal && stopping_) return;
      if (signal == kStopSignal) continue;
      {
        const std::lock_guard lock(mutex_);
        signal_ = signal;
        if (end_) end_();
        if (!is_orderly_) end_process(signal);
      }
      if (has_ended_in_time()) return;
      end_process(signal);
    }
  }

  /// Whether the command ends by itself. A second signal is told that it does not.
  bool has_ended_in_time() {
    const timespec patience{std::chrono::seconds(kPatience).count(), 0};
    return ::sigtimedwait(&set_, nullptr, &patience) == kStopSignal && stopping_;
  }

  sigset_t set_;
  sigset_t before_{};
  std::mutex mutex_;
  std::function<void()> end_;
  bool is_orderly_ = false;
  std::atomic<int> signal_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

Interrupts::Interrupts() : impl_(std::make_unique<Impl>()) {}
Interrupts::~Interrupts() = default;

Interrupts::Orderly::Orderly(Interrupts& interrupts) : interrupts_(interrupts) {
  interrupts.impl_->be_orderly(true);
  interrupts.check();
}

Interrupts::Orderly::~Orderly() {
  interrupts_.impl_->on_signal(nullptr);
  // After a signal the command is on its way out, and the wait for it goes on.
  if (interrupts_.impl_->signal() == 0) interrupts_.impl_->be_orderly(false);
}

void Interrupts::on_signal(std::function<void()> end) {
  impl_->on_signal(std::move(end));
}

void Interrupts::check() const {
  const int signal = impl_->signal();
  if (signal == 0) return;
  throw Failure(kInterrupted + signal, Error(ErrorCode::kPeerLost, text_of(signal, kept_in_words())));
}

void Interrupts::check_soon() const {
  constexpr std::chrono::milliseconds kPause{5};
  for (int i = 0; i < 40 && impl_->signal() == 0; ++i) std::this_thread::sleep_for(kPause);
  check();
}

void say_at_once(const std::string& line) {
  const std::size_t num_bytes = std::min(line.size(), kMostBytesAtOnce);
  if (can_write_at_once(STDERR_FILENO)) static_cast<void>(!::write(STDERR_FILENO, line.data(), num_bytes));
}

void set_signals_of_this_program() {
  std::signal(SIGCHLD, SIG_DFL);
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace tandem::cli
