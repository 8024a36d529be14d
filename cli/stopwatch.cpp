#include "stopwatch.hpp"

#include <chrono>
#include <tandem/symm/symmetric_memory.hpp>
#include <utility>
#include <vector>

#include "failure.hpp"
#include "timing.hpp"

namespace tandem::cli {

Stopwatch::Stopwatch(const Session& session) : session_(session) {
  if (session.placement().kind == DeviceKind::kCpu) return;
  constexpr std::int64_t kFlushBytes = std::int64_t{256} << 20;  // four times the L2 of an H200
  larger_than_cache_ = take(session.device().allocate_tensor({kFlushBytes / 4}, DType::kU32));
  meeting_ = take(symm::workspace(session.group(), session.device(), 1));
  start_ = take(session.device().create_event());
  end_ = take(session.device().create_event());
}

void Stopwatch::pause() const {
  constexpr std::chrono::microseconds kTimeToEnqueue{500};
  take(session_.stream().sleep(kTimeToEnqueue));
  take(meeting_->barrier(session_.stream(), symm::kFirstUserChannel));
}

void Stopwatch::load_before(std::function<void()> work, int times) {
  load_ = std::move(work);
  num_loads_ = times;
}

void Stopwatch::stand_ready() const {
  session_.meet("bench");
  if (!meeting_) return;
  for (int i = 0; i < num_loads_; ++i) load_();
  take(session_.stream().memset32(larger_than_cache_.view(), 0, 1, larger_than_cache_.view().numel()));
  pause();
}

double Stopwatch::time_us(const std::function<void()>& enqueue) const {
  stand_ready();
  if (!meeting_) return time_on_host_us(enqueue);
  Stream& stream = session_.stream();
  take(stream.record(*start_));
  enqueue();
  take(stream.record(*end_));
  session_.finish();
  return take(end_->elapsed_us(*start_));
}

double Stopwatch::time_on_host_us(const std::function<void()>& enqueue) const {
  const double begin = now_us();
  enqueue();
  session_.finish();
  return now_us() - begin;
}

std::optional<double> Stopwatch::host_us(const std::function<void()>& enqueue) const {
  if (!meeting_) return std::nullopt;
  // A host that has slept has cold caches, and a full queue of the driver's would let it wait for the GPU.
  constexpr int kFirstCalls = 8;
  constexpr int kCalls = 16;
  session_.meet("bench");
  pause();
  std::vector<double> us;
  for (int i = 0; i < kFirstCalls + kCalls; ++i) {
    const double begin = now_us();
    enqueue();
    if (i >= kFirstCalls) us.push_back(now_us() - begin);
  }
  session_.finish();
  return median(us);
}

Replay::Replay(const Session& session, const std::function<void()>& enqueue) : session_(session) {
  take(session.stream().begin_capture());
  enqueue();
  graph_ = take(session.stream().end_capture());
}

void Replay::run() const {
  take(graph_->launch(session_.stream()));
}

}  // namespace tandem::cli
