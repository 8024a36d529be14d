#include "device/cuda/gpu_clock.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <new>

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cuda/clock_kernels.hpp"
#include "device/cuda/cuda_error.hpp"
#include "device/cuda/internal_stream.hpp"
#include "device/stamps.hpp"

namespace tandem::cuda {
namespace {

/// A question to the GPU: its timer was read between the two.
struct Round {
  std::int64_t asked_ns = 0;
  std::int64_t answered_ns = 0;
  std::uint64_t answer = 0;

  [[nodiscard]] std::int64_t took_ns() const { return answered_ns - asked_ns; }
};

/// The tightest of some rounds with a kernel that answers; false if the deadline passed before an answer.
bool ask(ClockPage& page, Deadline deadline, Round& tightest) {
  constexpr std::uint32_t kMostRounds = 64;
  constexpr std::uint32_t kFewestRounds = 4;
  constexpr std::int64_t kLongestNs = 1'000'000;  // of all, where other threads keep this one waiting
  const std::atomic_ref asked(page.asked);
  const std::atomic_ref answered(page.answer);
  bool has_answer = false;
  std::int64_t begin_ns = 0;
  for (std::uint32_t number = 1; number <= kMostRounds; ++number) {
    Round round{.asked_ns = host_now_ns()};
    asked.store(number, std::memory_order_release);
    for (;;) {
      round.answer = answered.load(std::memory_order_acquire);
      round.answered_ns = host_now_ns();
      if (ClockPage::number_of(round.answer) == number) break;
      if (deadline.expired()) break;
    }
    if (ClockPage::number_of(round.answer) != number) break;
    // The first one waits for the kernel to begin.
    if (number == 1) begin_ns = round.answered_ns;
    if (number == 1 || round.took_ns() < tightest.took_ns()) tightest = round;
    has_answer = true;
    if (number >= kFewestRounds && round.answered_ns - begin_ns > kLongestNs) break;
  }
  asked.store(ClockPage::kOver, std::memory_order_release);
  return has_answer;
}

/// What the clocks of a GPU are read with, one a process. The page is never given back: that would wait for
/// every kernel of the GPU.
struct Reader {
  std::mutex mutex;
  ClockPage* page = nullptr;
};

Reader& reader_of(int gpu) {
  static std::mutex& mutex = *new std::mutex;
  static auto& readers = *new std::map<int, Reader>;
  const std::lock_guard lock(mutex);
  return readers[gpu];
}

using Events = std::array<TimedEvent, ClockPage::kPlaces>;

cudaError_t enqueue_places(ClockPage& page, const Events& events, cudaStream_t stream) {
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (const auto code = launch_note_time(&page.before_ns[i], stream); code != cudaSuccess) return code;
    if (const auto code = cudaEventRecord(events[i].native(), stream); code != cudaSuccess) return code;
    if (const auto code = launch_note_time(&page.behind_ns[i], stream); code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

/// Each event was passed between two looks at the timer, so the first one was too, earlier by what has
/// elapsed since.
Result<void> place_event(const ClockPage& page, const Events& events, ClockReading& reading) {
  std::int64_t earliest_ns = std::numeric_limits<std::int64_t>::min();
  std::int64_t latest_ns = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < events.size(); ++i) {
    TANDEM_ASSIGN(const std::int64_t since_ns, elapsed_ns(events.front(), events[i]));
    earliest_ns = std::max(earliest_ns, page.before_ns[i] - since_ns);
    latest_ns = std::min(latest_ns, page.behind_ns[i] - since_ns);
  }
  reading.event_ns = earliest_ns + (latest_ns - earliest_ns) / 2;
  // Looks and events are rounded, each to a tick, so that the two may pass each other.
  reading.event_uncertainty_ns = std::abs(latest_ns - earliest_ns) / 2;
  return {};
}

}  // namespace

Result<TimedEvent> TimedEvent::make() {
  TimedEvent event;
  TANDEM_TRY(check_cuda("clocks", cudaEventCreateWithFlags(&event.native_, cudaEventDefault)));
  return event;
}

Result<std::int64_t> elapsed_ns(const TimedEvent& begin, const TimedEvent& end) {
  float elapsed_ms = 0;
  const cudaError_t code = cudaEventElapsedTime(&elapsed_ms, begin.native(), end.native());
  if (code == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return fail(ErrorCode::kInvalidArgument,
                "stamps: a place has not been passed; synchronize its stream first");
  }
  TANDEM_TRY(check_cuda("elapsed time", code));
  return std::llround(1e6 * static_cast<double>(elapsed_ms));
}

Result<ClockReading> read_clocks(int gpu, Deadline deadline) {
  const CurrentDevice current(gpu);
  TANDEM_ASSIGN(const auto stream, InternalStream::of(gpu));
  Reader& reader = reader_of(gpu);
  const std::lock_guard lock(reader.mutex);
  if (reader.page == nullptr) {
    void* memory = nullptr;
    TANDEM_TRY(check_cuda(
        "clocks", cudaHostAlloc(&memory, sizeof(ClockPage), cudaHostAllocPortable | cudaHostAllocMapped)));
    reader.page = static_cast<ClockPage*>(memory);
  }
  ClockPage& page = *new (reader.page) ClockPage;
  Events events;
  for (TimedEvent& event : events) {
    TANDEM_ASSIGN(event, TimedEvent::make());
  }
  Round tightest;
  bool has_answer = false;
  TANDEM_TRY(check_cuda("clocks", stream->run([&](cudaStream_t on) {
    const std::int64_t limit_ns = deadline.remaining().count();
    if (const auto code = launch_answer_questions(&page, limit_ns, on); code != cudaSuccess) return code;
    has_answer = ask(page, deadline, tightest);
    return enqueue_places(page, events, on);
  })));
  if (!has_answer)
    return failf(ErrorCode::kTimeout, "clocks: cuda:{} did not answer the host before the deadline", gpu);
  ClockReading reading{.host_ns = tightest.asked_ns + tightest.took_ns() / 2,
                       .timer_ns = ClockPage::time_of(tightest.answer, page.begin_ns),
                       .uncertainty_ns = (tightest.took_ns() + 1) / 2};
  TANDEM_TRY(place_event(page, events, reading));
  reading.event = std::move(events.front());
  return reading;
}

}  // namespace tandem::cuda
