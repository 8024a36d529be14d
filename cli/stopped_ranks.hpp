#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace tandem::cli {

/// Says on stderr, once, that all ranks of a job are stopped: they notice no deadline then, and their
/// launcher has none.
class StoppedRanks {
 public:
  explicit StoppedRanks(std::vector<pid_t> ranks);
  ~StoppedRanks();
  StoppedRanks(const StoppedRanks&) = delete;
  StoppedRanks& operator=(const StoppedRanks&) = delete;

 private:
  void look_now_and_then();
  [[nodiscard]] bool are_all_stopped() const;

  const std::vector<pid_t> ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace tandem::cli
