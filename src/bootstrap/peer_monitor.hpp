#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <tandem/base/error.hpp>
#include <tandem/base/support.hpp>
#include <tandem/base/unique_fd.hpp>
#include <thread>

#include "bootstrap/process_id.hpp"

namespace tandem::bootstrap {

/// One thread that notices when watched processes end: at once by a pidfd, or within 10 ms by /proc. It never
/// reports one that lives, also where a sandbox hides it. Shared by a group and its subgroups.
class PeerMonitor : public std::enable_shared_from_this<PeerMonitor> {
 public:
  /// Errors: kDriver or kOutOfMemory without a thread or a file descriptor, with the limit to raise.
  [[nodiscard]] static Result<std::shared_ptr<PeerMonitor>> create();
  ~PeerMonitor();
  PeerMonitor(const PeerMonitor&) = delete;
  PeerMonitor& operator=(const PeerMonitor&) = delete;

  /// An object that ends the watch when destroyed; on_death will not run (nor be running) after that.
  class Watch;
  /// Calls on_death once, on the monitor's thread, when `process` has ended (or has before). The process must
  /// share its pids with this one.
  /// Errors: kDriver without a file descriptor for it.
  [[nodiscard]] Result<std::unique_ptr<Watch>> watch(const ProcessId& process,
                                                     std::function<void()> on_death);

 private:
  struct Entry {
    ProcessId process;
    UniqueFd pidfd;  ///< invalid where the kernel or a sandbox has no pidfd_open: looked for then
    std::function<void()> on_death;
    bool is_done = false;
  };
  explicit PeerMonitor(UniqueFd wake) : wake_(std::move(wake)) {}
  void run();
  void report_dead();
  [[nodiscard]] static bool is_dead(Entry& entry);
  void notify();

  UniqueFd wake_;
  std::mutex mutex_;  // held while on_death runs
  std::list<Entry> entries_;
  bool is_stopping_ = false;
  std::thread thread_;
};

class PeerMonitor::Watch {
 public:
  Watch(std::shared_ptr<PeerMonitor> monitor, std::list<Entry>::iterator entry, Support sight)
      : monitor_(std::move(monitor)), entry_(entry), sight_(std::move(sight)) {}
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// No where the end of the process may go unseen: there is no pidfd, and /proc does not show it.
  [[nodiscard]] const Support& sight() const { return sight_; }

 private:
  std::shared_ptr<PeerMonitor> monitor_;
  std::list<Entry>::iterator entry_;
  Support sight_;
};

}  // namespace tandem::bootstrap
