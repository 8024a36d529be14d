#include "stopped_ranks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <utility>

#include "base/make_thread.hpp"
#include "interrupts.hpp"

namespace tandem::cli {
namespace {

/// False too where /proc cannot be read.
bool is_stopped(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(") ");  // a name may hold anything
  return name_end != std::string::npos && name_end + 2 < text.size() && text[name_end + 2] == 'T';
}

}  // namespace

StoppedRanks::StoppedRanks(std::vector<pid_t> ranks) : ranks_(std::move(ranks)) {
  // A job without this line is still a job.
  if (auto made = make_thread("stopped ranks", [this] { look_now_and_then(); })) thread_ = *std::move(made);
}

StoppedRanks::~StoppedRanks() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool StoppedRanks::are_all_stopped() const {
  return std::all_of(ranks_.begin(), ranks_.end(), is_stopped);
}

void StoppedRanks::look_now_and_then() {
  constexpr std::chrono::seconds kPause{1};
  bool were_stopped = false;  // a debugger stops for moments
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kPause, [&] { return is_over_; })) {
    const bool are_stopped = are_all_stopped();
    if (are_stopped && were_stopped) {
      return say_at_once(fmt::format("tandem: all ranks are stopped; they go on after: kill -CONT {}\n",
                                     fmt::join(ranks_, " ")));
    }
    were_stopped = are_stopped;
  }
}

}  // namespace tandem::cli
