#include "bootstrap/peer_monitor.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/format.hpp"
#include "base/make_thread.hpp"
#include "base/try.hpp"

namespace tandem::bootstrap {
namespace {

constexpr int kProcPollMs = 10;

/// An invalid fd with errno where there is none.
UniqueFd open_pidfd(pid_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

/// What poll() finds without waiting: POLLIN at a process's end, POLLNVAL if the program has closed it.
int events_of(int pidfd) {
  pollfd entry{pidfd, POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0 ? entry.revents : 0;
}

bool is_pidfd(int fd) {
  return ::syscall(SYS_pidfd_send_signal, fd, 0, nullptr, 0) == 0 || errno != EBADF;
}

}  // namespace

Result<std::shared_ptr<PeerMonitor>> PeerMonitor::create() {
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return tl::unexpected(system_refusal("peer monitor: no eventfd", errno));
  std::shared_ptr<PeerMonitor> monitor(new PeerMonitor(std::move(wake)));
  TANDEM_ASSIGN(monitor->thread_, make_thread("peer monitor", [raw = monitor.get()] { raw->run(); }));
  return monitor;
}

PeerMonitor::~PeerMonitor() {
  if (!thread_.joinable()) return;
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
  Entry entry{process, open_pidfd(process.pid), std::move(on_death)};
  const int code = entry.pidfd.valid() ? 0 : errno;
  if (code == EMFILE || code == ENFILE || code == ENOMEM) {
    return tl::unexpected(
        system_refusal(fmt::format("peer monitor: process {} cannot be watched", process.pid), code));
  }
  // Looked at after the open, because the pid may be another process's by now.
  const Life life = look_at(process);
  if (life == Life::kGone) entry.pidfd.reset();
  Support sight;
  if (!entry.pidfd.valid() && life == Life::kUnknown) {
    sight = Support::no(fmt::format(
        "pidfd_open: {}, and /proc does not show them; allow that system call, or mount /proc of this pid "
        "namespace without hidepid",
        std::strerror(code)));
  }
  std::list<Entry>::iterator place;
  {
    const std::lock_guard lock(mutex_);
    place = entries_.insert(entries_.end(), std::move(entry));
  }
  notify();
  return std::make_unique<Watch>(shared_from_this(), place, std::move(sight));
}

PeerMonitor::Watch::~Watch() {
  const std::lock_guard lock(monitor_->mutex_);
  monitor_->entries_.erase(entry_);
}

bool PeerMonitor::is_dead(Entry& entry) {
  const int events = entry.pidfd.valid() ? events_of(entry.pidfd.get()) : POLLNVAL;
  if (events == 0) return false;
  const Life life = look_at(entry.process);
  if ((events & POLLIN) != 0 && life != Life::kAlive && is_pidfd(entry.pidfd.get())) return true;
  // The program has closed the fd, and its number may be another file's by now.
  static_cast<void>(entry.pidfd.release());
  return life == Life::kGone;
}

void PeerMonitor::report_dead() {
  for (Entry& entry : entries_) {
    if (entry.is_done || !is_dead(entry)) continue;
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
