#include "device/cpu/cpu_stream.hpp"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <tandem/base/log.hpp>

#include "base/make_thread.hpp"
#include "base/try.hpp"
#include "base/usable_cores.hpp"
#include "device/cpu/copy_plan.hpp"
#include "device/cpu/cpu_event.hpp"
#include "device/cpu/word_wait.hpp"

namespace tandem::cpu {
namespace {

using BehindFault = WorkQueue::BehindFault;

/// About the cost of a wake-up. Streams outnumber cores by far, so it stays short.
std::chrono::nanoseconds spin_of(const Config& config) {
  if (config.spin) return *config.spin;
  return usable_cores() > 1 ? std::chrono::microseconds(5) : std::chrono::microseconds(0);
}

void sleep_for(std::chrono::nanoseconds duration) {
  constexpr std::int64_t kNsPerS = 1'000'000'000;
  timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  const std::int64_t ns = until.tv_nsec + duration.count() % kNsPerS;
  until.tv_sec += duration.count() / kNsPerS + ns / kNsPerS;
  until.tv_nsec = ns % kNsPerS;
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

}  // namespace

CpuStream::CpuStream(Device& device, int priority, std::shared_ptr<CpuFrees> frees)
    : Stream(device, priority),
      queue_(std::make_shared<WorkQueue>(spin_of(device.config()), id())),
      frees_(std::move(frees)) {
  frees_->add_queue(queue_);
}

Result<std::unique_ptr<Stream>> CpuStream::create(Device& device, int priority,
                                                  std::shared_ptr<CpuFrees> frees) {
  std::unique_ptr<CpuStream> stream(new CpuStream(device, priority, std::move(frees)));
  auto serve = [queue = stream->queue_, threshold = device.config().log_level] {
    pthread_setname_np(pthread_self(), "tandem-stream");
    const std::optional<Error> lost = queue->run();
    if (lost)
      log(threshold, LogLevel::kWarning,
          "a stream ended with a fault nobody asked for: " + lost->to_string());
  };
  TANDEM_ASSIGN(stream->worker_, make_thread("create_stream", std::move(serve)));
  return stream;
}

CpuStream::~CpuStream() {
  if (!queue_->is_here()) {
    keep_forever(std::move(worker_));
    keep_forever(queue_);
    return;
  }
  queue_->close();
  if (worker_.joinable()) worker_.join();
  frees_->remove_queue(queue_);
  frees_->free_unused();
}

Result<void> CpuStream::enqueue(Task&& task) {
  TANDEM_TRY(queue_->push(std::move(task), BehindFault::kSkip));
  return {};
}

Result<Position> CpuStream::enqueue_mark(Task&& task) {
  TANDEM_ASSIGN(const std::uint64_t sequence, queue_->push(std::move(task), BehindFault::kRun));
  return Position{queue_, sequence};
}

Result<void> CpuStream::do_copy(const TensorView& from, const TensorView& to) {
  return enqueue(Task([plan = CopyPlan(from, to)]() -> Result<void> {
    plan.run();
    return {};
  }));
}

Result<void> CpuStream::do_write_value32(std::uint32_t* word, std::uint32_t value) {
  return enqueue(Task([word, value] { return write_word(word, value); }));
}

Result<void> CpuStream::do_memset32(std::uint32_t* words, std::uint32_t value, std::int64_t count) {
  return enqueue(Task([words, value, count]() -> Result<void> {
    std::fill_n(words, count, value);
    return {};
  }));
}

Result<void> CpuStream::do_sleep(std::chrono::nanoseconds duration) {
  return enqueue(Task([duration]() -> Result<void> {
    sleep_for(duration);
    return {};
  }));
}

Result<void> CpuStream::do_record(Event& event) {
  auto* mark = dynamic_cast<CpuEvent*>(&event);
  if (mark == nullptr) return fail(ErrorCode::kInvalidArgument, "record: the event is not of a CPU device");
  return mark->record_on(*this);
}

Result<void> CpuStream::do_wait(const Event& event) {
  const auto* mark = dynamic_cast<const CpuEvent*>(&event);
  if (mark == nullptr) return fail(ErrorCode::kInvalidArgument, "wait: the event is not of a CPU device");
  return join(mark->position());
}

Result<void> CpuStream::do_wait(Stream& other) {
  const auto* stream = dynamic_cast<const CpuStream*>(&other);
  if (stream == nullptr)
    return fail(ErrorCode::kInvalidArgument, "wait: the other stream is not of a CPU device");
  return join(stream->position());
}

Result<void> CpuStream::join(const Position& position) {
  if (!position.queue || position.queue == queue_ || position.queue->is_settled(position.sequence)) return {};
  // Waits without a deadline: positions lie in the past, so joins form no cycle, and what they wait for has
  // deadlines.
  TANDEM_TRY(queue_->push(Task([position = position, own = queue_.get()]() -> Result<void> {
                            auto result = position.queue->wait(position.sequence, Deadline::never());
                            if (!result) own->add_faulty_source(position);
                            return result;
                          }),
                          BehindFault::kRun));
  return {};
}

Result<void> CpuStream::do_synchronize(Deadline deadline) {
  if (std::this_thread::get_id() == worker_.get_id()) {
    return fail(ErrorCode::kInvalidArgument,
                "synchronize: called by a task of the same stream, it would wait for itself");
  }
  auto done = queue_->synchronize(deadline);
  frees_->free_unused();
  return done;
}

Result<void> launch(Stream& stream, Task task) {
  auto* queue = dynamic_cast<CpuStream*>(&stream);
  if (queue == nullptr) return fail(ErrorCode::kInvalidArgument, "launch: not a CPU stream");
  if (!task) return fail(ErrorCode::kInvalidArgument, "launch: the task is empty");
  return queue->enqueue(std::move(task));
}

}  // namespace tandem::cpu
