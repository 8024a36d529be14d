#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <tandem/base/error.hpp>
#include <tandem/base/unique_fd.hpp>
#include <thread>

#include "bootstrap/process_id.hpp"

namespace tandem::bootstrap {

/// One thread that notices, within a millisecond, when watched processes end. Shared by a group and its
/// subgroups.
class PeerMonitor : public std::enable_shared_from_this<PeerMonitor> {
 public:
  [[nodiscard]] static Result<std::shared_ptr<PeerMonitor>> create();
  ~PeerMonitor();
  PeerMonitor(const PeerMonitor&) = delete;
  PeerMonitor& operator=(const PeerMonitor&) = delete;

  /// An object that ends the watch when destroyed; on_death will not run (nor be running) after that.
  class Watch;
  /// Calls on_death once, on the monitor's thread, when `process` has ended (or has before).
  /// Errors: kDriver when the process exists but cannot be watched.
  [[nodiscard]] Result<std::unique_ptr<Watch>> watch(const ProcessId& process,
                                                     std::function<void()> on_death);

 private:
  struct Entry {
    ProcessId process;
    UniqueFd pidfd;  ///< invalid where the kernel or a sandbox has no pidfd_open: /proc is polled then
    std::function<void()> on_death;
    bool is_done = false;
  };
  explicit PeerMonitor(UniqueFd wake) : wake_(std::move(wake)) {}
  void run();
  void report_dead();
  void notify();

  UniqueFd wake_;
  std::mutex mutex_;  // held while on_death runs
  std::list<Entry> entries_;
  bool is_stopping_ = false;
  std::thread thread_;
};

class PeerMonitor::Watch {
 public:
  Watch(std::shared_ptr<PeerMonitor> monitor, std::list<Entry>::iterator entry)
      : monitor_(std::move(monitor)), entry_(entry) {}
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  std::shared_ptr<PeerMonitor> monitor_;
  std::list<Entry>::iterator entry_;
};

}  // namespace tandem::bootstrap
