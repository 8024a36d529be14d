#include "device/cuda/host_wait.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/usable_cores.hpp"

namespace tandem::cuda {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr milliseconds kAskEvery(1);
// The kernel adds about 50 us to it, its timer slack.
constexpr microseconds kNap(20);

/// About the cost of a nap that is just too long. Ranks that share one core must not spin.
nanoseconds spin_of(Spin spin) {
  static const bool has_cores = usable_cores() > 1;  // reads files
  if (spin) return *spin;
  return has_cores ? microseconds(100) : microseconds(0);
}

template <class Query>
cudaError_t poll(Query query, const WatchList& watches, Deadline deadline, Spin spin) {
  cudaError_t code = query();
  if (code != cudaErrorNotReady || deadline.expired()) return code;
  const auto spin_end = Deadline::after(spin_of(spin));
  auto next_ask = Deadline::after(kAskEvery);
  for (;;) {
    code = query();
    if (code != cudaErrorNotReady || deadline.expired()) return code;
    if (next_ask.expired()) {
      watches.ask_all();
      next_ask = Deadline::after(kAskEvery);
    }
    if (spin_end.expired()) std::this_thread::sleep_for(std::min<nanoseconds>(kNap, deadline.remaining()));
  }
}

}  // namespace

cudaError_t wait_until_done(cudaStream_t stream, const WatchList& watches, Deadline deadline, Spin spin) {
  return poll([&] { return cudaStreamQuery(stream); }, watches, deadline, spin);
}

cudaError_t wait_until_done(cudaEvent_t event, const WatchList& watches, Deadline deadline, Spin spin) {
  return poll([&] { return cudaEventQuery(event); }, watches, deadline, spin);
}

}  // namespace tandem::cuda
