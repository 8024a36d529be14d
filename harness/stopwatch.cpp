#include "harness/stopwatch.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <tandem/symm/symmetric_memory.hpp>
#include <utility>
#include <vector>

#include "harness/failure.hpp"

namespace tandem::harness {

namespace {
double clock_us(::clockid_t clock) {
  std::timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}
}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

double thread_cpu_us() {
  return clock_us(CLOCK_THREAD_CPUTIME_ID);
}

void CallTimes::time(const std::function<void()>& call) {
  const double begin = now_us();
  const double cpu_begin = clock_us(CLOCK_PROCESS_CPUTIME_ID);
  call();
  cpu_us.push_back(clock_us(CLOCK_PROCESS_CPUTIME_ID) - cpu_begin);
  us.push_back(now_us() - begin);
}

Stopwatch::Stopwatch(Device& device, Group& group, Stream& stream) : group_(group), stream_(stream) {
  if (device.id().kind == DeviceKind::kCpu) return;
  constexpr std::int64_t kFlushBytes = std::int64_t{256} << 20;  // four times the L2 of an H200
  larger_than_cache_ = take(device.allocate_tensor({kFlushBytes / 4}, DType::kU32));
  // Ranks of other hosts are together behind the work of load_before().
  meeting_ = take(symm::workspace(group.within_host(), device, 1));
  start_ = take(device.create_event());
  end_ = take(device.create_event());
}

void Stopwatch::meet() const {
  take(group_.all_gather({}, "bench"));
}

void Stopwatch::pause() const {
  constexpr std::chrono::microseconds kTimeToEnqueue{500};
  take(stream_.sleep(kTimeToEnqueue));
  take(meeting_->barrier(stream_, symm::kFirstUserChannel));
}

void Stopwatch::load_before(std::function<void()> work, int times) {
  load_ = std::move(work);
  num_loads_ = times;
}

void Stopwatch::stand_ready() const {
  meet();
  if (!meeting_) return;
  for (int i = 0; i < num_loads_; ++i) load_();
  take(stream_.memset32(larger_than_cache_.view(), 0, 1, larger_than_cache_.view().numel()));
  pause();
}

double Stopwatch::time_us(const std::function<void()>& enqueue) const {
  stand_ready();
  if (!meeting_) return time_on_host_us(enqueue);
  take(stream_.record(*start_));
  enqueue();
  take(stream_.record(*end_));
  take(stream_.synchronize());
  return take(end_->elapsed_us(*start_));
}

double Stopwatch::time_on_host_us(const std::function<void()>& enqueue) const {
  const double begin = now_us();
  enqueue();
  take(stream_.synchronize());
  return now_us() - begin;
}

std::optional<double> Stopwatch::host_us(const std::function<void()>& enqueue) const {
  if (!meeting_) return std::nullopt;
  // A host that has slept has cold caches, and a full queue of the driver's would let it wait for the GPU.
  constexpr int kFirstCalls = 8;
  constexpr int kCalls = 16;
  meet();
  pause();
  std::vector<double> us;
  for (int i = 0; i < kFirstCalls + kCalls; ++i) {
    const double begin = now_us();
    enqueue();
    if (i >= kFirstCalls) us.push_back(now_us() - begin);
  }
  take(stream_.synchronize());
  return median(us);
}

Replay::Replay(Stream& stream, const std::function<void()>& enqueue) : stream_(stream) {
  take(stream.begin_capture());
  enqueue();
  graph_ = take(stream.end_capture());
}

void Replay::run() const {
  take(graph_->launch(stream_));
}

}  // namespace tandem::harness
