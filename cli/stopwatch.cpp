#include "stopwatch.hpp"

#include <chrono>
#include <tandem/symm/symmetric_memory.hpp>

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

OneTime Stopwatch::time(const std::function<void()>& enqueue) const {
  session_.meet("bench");
  if (!meeting_) return time_on_host(enqueue);
  constexpr std::chrono::microseconds kTimeToEnqueue{500};
  Stream& stream = session_.stream();
  take(stream.memset32(larger_than_cache_.view(), 0, 1, larger_than_cache_.view().numel()));
  take(stream.sleep(kTimeToEnqueue));
  take(meeting_->barrier(stream, symm::kFirstUserChannel));
  take(stream.record(*start_));
  const double begin = now_us();
  enqueue();
  const double enqueued = now_us();
  take(stream.record(*end_));
  session_.finish();
  return {take(end_->elapsed_us(*start_)), enqueued - begin};
}

OneTime Stopwatch::time_on_host(const std::function<void()>& enqueue) const {
  const double begin = now_us();
  enqueue();
  const double enqueued = now_us();
  session_.finish();
  return {now_us() - begin, enqueued - begin};
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
