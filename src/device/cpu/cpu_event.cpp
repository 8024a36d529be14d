#include "device/cpu/cpu_event.hpp"

#include "base/try.hpp"
#include "device/cpu/cpu_stream.hpp"

namespace tandem::cpu {

Position CpuEvent::position() const {
  const std::lock_guard lock(mark_->mutex);
  return mark_->position;
}

Result<void> CpuEvent::record_on(CpuStream& stream) {
  const std::lock_guard lock(mark_->mutex);
  const std::uint64_t record = mark_->num_records + 1;
  TANDEM_ASSIGN(mark_->position, stream.enqueue_mark(Task([mark = mark_, record]() -> Result<void> {
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard task_lock(mark->mutex);
    if (mark->num_records == record) mark->time = now;
    return {};
  })));
  mark_->num_records = record;
  return {};
}

bool CpuEvent::is_done() const {
  return cpu::is_done(position());
}

Result<void> CpuEvent::synchronize(Deadline deadline) {
  const Position mark = position();
  if (!mark.queue || mark.queue->is_settled(mark.sequence)) return {};
  return mark.queue->wait(mark.sequence, deadline);
}

Result<double> CpuEvent::elapsed_us(const Event& since) const {
  const auto* start = dynamic_cast<const CpuEvent*>(&since);
  if (start == nullptr)
    return fail(ErrorCode::kInvalidArgument, "elapsed_us: `since` is an event of another backend");
  const auto time_of = [](const CpuEvent& event) -> Result<std::chrono::steady_clock::time_point> {
    const std::lock_guard lock(event.mark_->mutex);
    const Position& mark = event.mark_->position;
    if (!mark.queue) return fail(ErrorCode::kInvalidArgument, "elapsed_us: an event was never recorded");
    if (!mark.queue->is_done(mark.sequence)) {
      return fail(ErrorCode::kInvalidArgument, "elapsed_us: an event is not done; synchronize it first");
    }
    return event.mark_->time;
  };
  TANDEM_ASSIGN(const auto end_time, time_of(*this));
  TANDEM_ASSIGN(const auto start_time, time_of(*start));
  return std::chrono::duration<double, std::micro>(end_time - start_time).count();
}

}  // namespace tandem::cpu
