#include "pinned.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <barrier>
#include <cerrno>
#include <cstring>

#include "base/threads_together.hpp"
#include "failure.hpp"

namespace tandem::cli {
namespace {

void stay_on(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof(set), &set) == 0) return;
  const int number = errno;
  throw Failure(
      kFailed,
      Error(ErrorCode::kDriver,
            fmt::format("cannot stay on core {}: {}", cores.front(), std::strerror(number)), number));
}

}  // namespace

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {0};
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

Pinned::Pinned(const std::vector<int>& cores) : before_(allowed_cores()) {
  stay_on(cores);
}

Pinned::~Pinned() {
  try {
    stay_on(before_);
  } catch (const Failure&) {
    // They were allowed before: whoever forbade them meanwhile wants it so.
  }
}

void run_at_once(const std::vector<int>& cores, const std::function<void(std::size_t)>& work) {
  std::barrier meeting(static_cast<std::ptrdiff_t>(cores.size()));
  ThreadsTogether threads;
  for (std::size_t i = 0; i < cores.size(); ++i) {
    const Pinned here({cores[i]});
    take(threads.add(fmt::format("thread {} of {}, one for each core", i + 1, cores.size()), [&, i] {
      meeting.arrive_and_wait();
      work(i);
    }));
  }
  threads.run();
}

}  // namespace tandem::cli
