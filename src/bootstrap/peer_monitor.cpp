#include "bootstrap/peer_monitor.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

#include "base/format.hpp"

namespace tandem::bootstrap {
namespace {

constexpr int kProcPollMs = 10;

/// An invalid fd with errno ESRCH for a process that is gone.
UniqueFd open_pidfd(pid_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

bool is_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace

Result<std::shared_ptr<PeerMonitor>> PeerMonitor::create() {
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) {
    return fail(ErrorCode::kDriver, fmt::format("peer monitor: eventfd failed: {}", std::strerror(errno)),
                errno);
  }
  std::shared_ptr<PeerMonitor> monitor(new PeerMonitor(std::move(wake)));
  // The application's signals are for its own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  monitor->thread_ = std::thread([raw = monitor.get()] { raw->run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return monitor;
}

PeerMonitor::~PeerMonitor() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  notify();
  thread_.join();
}

void PeerMonitor::notify() {
  const std::uint64_t one = 1;
  // Can fail only when the counter is full: the thread wakes up then anyway.
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof(one));
}

Result<std::unique_ptr<PeerMonitor::Watch>> PeerMonitor::watch(const ProcessId& process,
                                                               std::function<void()> on_death) {
  // The number may belong to another process by now: is_alive() also compares the start time, after the open.
  Entry entry{process, open_pidfd(process.pid), std::move(on_death)};
  if (!entry.pidfd.valid() && (errno == EMFILE || errno == ENFILE)) {
    return fail(ErrorCode::kDriver,
                fmt::format("peer monitor: no file descriptor left to watch process {}", process.pid), errno);
  }
  if (!is_alive(process)) entry.pidfd.reset();
  std::list<Entry>::iterator place;
  {
    const std::lock_guard lock(mutex_);
    place = entries_.insert(entries_.end(), std::move(entry));
  }
  notify();
  return std::make_unique<Watch>(shared_from_this(), place);
}

PeerMonitor::Watch::~Watch() {
  const std::lock_guard lock(monitor_->mutex_);
  monitor_->entries_.erase(entry_);
}

void PeerMonitor::report_dead() {
  for (Entry& entry : entries_) {
    if (entry.is_done) continue;
    const bool is_dead = entry.pidfd.valid() ? is_readable(entry.pidfd.get()) : !is_alive(entry.process);
    if (!is_dead) continue;
    entry.is_done = true;
    entry.on_death();
  }
}

void PeerMonitor::run() {
  std::vector<pollfd> polled;
  for (;;) {
    polled.assign(1, pollfd{wake_.get(), POLLIN, 0});
    int timeout_ms = -1;
    {
      const std::lock_guard lock(mutex_);
      if (is_stopping_) return;
      report_dead();
      for (const Entry& entry : entries_) {
        if (entry.is_done) continue;
        if (entry.pidfd.valid()) {
          polled.push_back({entry.pidfd.get(), POLLIN, 0});
        } else {
          timeout_ms = kProcPollMs;
        }
      }
    }
    ::poll(polled.data(), polled.size(), timeout_ms);  // EINTR and all else: look again
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(wake_.get(), &count, sizeof(count));
  }
}

}  // namespace tandem::bootstrap
