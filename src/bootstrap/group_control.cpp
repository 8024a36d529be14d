#include "bootstrap/group_control.hpp"

#include <algorithm>
#include <cstring>
#include <tandem/base/log.hpp>
#include <thread>

#include "base/format.hpp"
#include "base/interrupts.hpp"
#include "base/try.hpp"
#include "bootstrap/wait_circles.hpp"
#include "io/whole_file.hpp"

namespace tandem::bootstrap {
namespace {

/// Announces in the control memory that a thread of this rank waits for `peer`.
class WaitRecord {
 public:
  WaitRecord(RankArea& area, int peer) {
    if (peer < 0) return;
    for (auto& word : area.waits_for) {
      std::int32_t free = 0;
      if (!word.compare_exchange_strong(free, peer + 1, std::memory_order_relaxed)) continue;
      word_ = &word;
      return;
    }
  }
  ~WaitRecord() {
    if (word_ != nullptr) word_->store(0, std::memory_order_relaxed);
  }
  WaitRecord(const WaitRecord&) = delete;
  WaitRecord& operator=(const WaitRecord&) = delete;

 private:
  std::atomic<std::int32_t>* word_ = nullptr;
};

}  // namespace

std::chrono::nanoseconds spin_duration(int num_ranks, int num_cores,
                                       std::optional<std::chrono::microseconds> configured) {
  if (configured) return *configured;
  return num_ranks <= num_cores ? std::chrono::microseconds(30) : std::chrono::microseconds(3);
}

GroupControl::GroupControl(std::shared_ptr<ControlMemory> memory, const Options& options)
    : memory_(std::move(memory)),
      options_(options),
      next_sequence_(memory_->header().identity.first_sequence),
      host_(this_executor()),
      last_sequence_(memory_->header().identity.first_sequence - 1) {
  WaitCircles::of_process().add(*this);
}

GroupControl::~GroupControl() {
  WaitCircles::of_process().remove(*this);
}

std::uint64_t GroupControl::next_sequence() {
  host_.store(this_executor(), std::memory_order_relaxed);
  const std::uint64_t sequence = next_sequence_.fetch_add(1);
  own().issued.store(sequence, std::memory_order_release);
  return sequence;
}

std::uint64_t GroupControl::begin_call(const Fingerprint& mine) {
  const std::uint64_t sequence = next_sequence();
  own().flight.enter(sequence, mine.hash, text_of(mine));
  return sequence;
}

void GroupControl::note_reached(std::uint64_t sequence, CallState state) {
  own().flight.reach(sequence, state);
}

void GroupControl::note_queued(std::uint64_t sequence, ExecutorKey stream) {
  const std::lock_guard lock(queued_mutex_);
  queued_[sequence % kMostQueued] = {sequence, stream};
}

ExecutorKey GroupControl::runner_of_next_call() const {
  const std::uint64_t next = own().posted.load(std::memory_order_acquire) + 1;
  const std::lock_guard lock(queued_mutex_);
  const Queued& queued = queued_[next % kMostQueued];
  return queued.sequence == next ? queued.stream : 0;
}

// ---- waiting ----

GroupControl::Look GroupControl::look(const Wait& wait) const {
  if (wait.ready()) return Look::kReady;
  if (memory_->header().error.state.load(std::memory_order_acquire) != ErrorRecord::kNone)
    return Look::kPoisoned;
  const int peer = wait.info.is_relayed ? -1 : wait.info.peer;
  if (peer >= 0 && memory_->rank(peer).left.load(std::memory_order_acquire) != 0) {
    // What the peer did before it left counts.
    return wait.ready() ? Look::kReady : Look::kPeerLeft;
  }
  if (wait.deadline.expired()) return Look::kExpired;
  return is_interrupted() ? Look::kInterrupted : Look::kPending;
}

GroupControl::Look GroupControl::spin(const Wait& wait) const {
  constexpr int kPausesPerLook = 8;
  const auto until = Deadline::after(options_.spin);
  Look result = look(wait);
  while (result == Look::kPending && !until.expired()) {
    for (int i = 0; i < kPausesPerLook; ++i) spin_pause();
    result = look(wait);
  }
  return result;
}

Result<void> GroupControl::wait(const WaitInfo& info, Deadline deadline, FunctionRef<bool()> ready) {
  if (ready()) return {};
  return wait_slowly({info, deadline, ready});
}

Result<void> GroupControl::wait(const WaitInfo& info, Deadline deadline, FunctionRef<bool()> ready,
                                FunctionRef<void()> nap) {
  if (ready()) return {};
  return wait_slowly({info, deadline, ready, nullptr, &nap});
}

GroupControl::Look GroupControl::sleep_and_look(const Wait& wait, std::chrono::nanoseconds longest) const {
  if (wait.nap != nullptr) {
    (*wait.nap)();
    return look(wait);
  }
  Sleeper sleeper(own().doorbell);
  const Look result = look(wait);
  if (result == Look::kPending) {
    sleeper.sleep(std::min({wait.deadline.remaining(), longest, longest_nap()}));
  }
  return result;
}

GroupControl::Look GroupControl::wait_and_look_for_circles(const Wait& wait) {
  // Rings for other waits of this rank end a sleep too.
  const auto sleep_for = [&](std::chrono::milliseconds duration) {
    const auto end = Deadline::after(duration);
    Look result = Look::kPending;
    while (result == Look::kPending && !end.expired()) result = sleep_and_look(wait, end.remaining());
    return result;
  };
  Look result = sleep_for(WaitCircles::kFirstLook);  // most waits end here, and cost nothing
  if (result != Look::kPending) return result;
  WaitCircles::Watch watch(*this, wait.info);
  while (result == Look::kPending) {
    watch.look();
    result = sleep_for(WaitCircles::kBetweenLooks);
  }
  return result;
}

Result<void> GroupControl::wait_slowly(const Wait& wait) {
  const auto started = Deadline::Clock::now();
  const WaitRecord record(own(), wait.info.peer);
  Look result = spin(wait);
  if (result == Look::kPending && wait.info.actor != WaitInfo::Actor::kUnknown)
    result = wait_and_look_for_circles(wait);
  while (result == Look::kPending) result = sleep_and_look(wait, std::chrono::nanoseconds::max());
  if (result == Look::kReady) return {};
  return give_up(wait, result, started);
}

Result<void> GroupControl::give_up(const Wait& wait, Look result, Deadline::Clock::time_point started) {
  if (result == Look::kPoisoned) WaitCircles::of_process().pass_on(*this);
  if (result == Look::kPeerLeft) report_peer_left(wait.info);
  if (result == Look::kExpired) report_timeout(wait, Deadline::Clock::now() - started);
  if (result == Look::kInterrupted) report_interrupt(wait.info);
  return status();
}

void GroupControl::report_peer_left(const WaitInfo& info) {
  poison(Error(ErrorCode::kPeerLost,
               fmt::format("rank {} waited in {}{} for {}, which has left the group", waiter_of(info),
                           info.what, describe_place(info), describe_rank(info.peer))),
         info.peer);
}

void GroupControl::report_interrupt(const WaitInfo& info) {
  poison(Error(ErrorCode::kPeerLost,
               fmt::format("rank {} was interrupted in {}{} while it waited for {}", rank(), info.what,
                           describe_place(info), describe_rank(info.peer))),
         rank());
}

void GroupControl::report_timeout(const Wait& wait, std::chrono::nanoseconds waited) {
  const Culprit culprit = find_culprit(wait.info);
  poison(Error(ErrorCode::kTimeout, describe_timeout(wait, waited, culprit)), culprit.rank);
}

void GroupControl::report_timeout(const WaitInfo& info, std::chrono::nanoseconds waited) {
  const auto never = [] { return false; };
  report_timeout(Wait{info, Deadline::never(), never}, waited);
}

Result<void> GroupControl::wait_for_ranks(WaitInfo info, Deadline deadline, FunctionRef<bool(int)> has_come,
                                          FunctionRef<bool()> interrupted) {
  for (int r = 0; r < size(); ++r) {
    const auto ready = [&] { return has_come(r) || interrupted(); };
    if (ready()) continue;
    info.peer = r;
    TANDEM_TRY(wait_slowly({info, deadline, ready, &has_come}));
  }
  return {};
}

void GroupControl::ring(int peer) {
  memory_->rank(peer).doorbell.ring();
}

void GroupControl::ring_everybody() {
  for (int r = 0; r < size(); ++r) ring(r);
}

// ---- the group's error ----

Result<void> GroupControl::check_process() const {
  if (home_.is_here()) return {};
  return tl::unexpected<Error>(home_.refusal(fmt::format("group '{}'", name())));
}

Result<void> GroupControl::status() const {
  TANDEM_TRY(check_process());
  const ErrorRecord& error = memory_->header().error;
  std::uint32_t state = error.state.load(std::memory_order_acquire);
  if (state == ErrorRecord::kNone) return {};
  // Somebody is writing it just now, or was killed while doing so.
  const auto patience = Deadline::after(std::chrono::milliseconds(10));
  while (state == ErrorRecord::kWriting && !patience.expired()) {
    std::this_thread::yield();
    state = error.state.load(std::memory_order_acquire);
  }
  if (state == ErrorRecord::kWriting) {
    return fail(ErrorCode::kPeerLost, "a rank died while it reported an error of the group");
  }
  const auto largest = static_cast<std::int32_t>(ErrorCode::kInternal);
  const bool known = error.code >= 0 && error.code <= largest;
  return fail(known ? static_cast<ErrorCode>(error.code) : ErrorCode::kInternal,
              std::string(error.text, ::strnlen(error.text, sizeof(error.text))), error.native_code);
}

void GroupControl::poison(const Error& error, int culprit) {
  write_error(error, culprit, {});
}

void GroupControl::poison_circle(const Error& error, std::span<const std::uint64_t> circle) {
  write_error(error, -1, circle);
}

std::span<const std::uint64_t> GroupControl::circle() const {
  const ErrorRecord& record = memory_->header().error;
  if (record.state.load(std::memory_order_acquire) != ErrorRecord::kSet || record.circle[0] == 0) return {};
  return record.circle;
}

void GroupControl::write_error(const Error& error, int culprit, std::span<const std::uint64_t> circle) {
  if (!home_.is_here()) return;  // the group is the parent's
  ErrorRecord& record = memory_->header().error;
  std::uint32_t none = ErrorRecord::kNone;
  if (record.state.compare_exchange_strong(none, ErrorRecord::kWriting, std::memory_order_acq_rel)) {
    record.code = static_cast<std::int32_t>(error.code());
    record.culprit = culprit;
    record.native_code = error.native_code();
    std::copy_n(circle.begin(), std::min<std::size_t>(circle.size(), ErrorRecord::kMostGroups),
                record.circle);
    const std::size_t length = std::min(error.text().size(), sizeof(record.text) - 1);
    std::memcpy(record.text, error.text().data(), length);
    record.text[length] = '\0';
    record.state.store(ErrorRecord::kSet, std::memory_order_release);
  }
  // Also for an error that came second: whoever was first may have been killed before it rang.
  for (int r = 0; r < size(); ++r) memory_->rank(r).doorbell.ring_always();
  if (none == ErrorRecord::kNone) save_flight_record();
}

FlightRecord GroupControl::flight_record() const {
  FlightRecord record{.group = name(), .error = {}, .culprit = -1, .ranks = {}};
  const ErrorRecord& error = memory_->header().error;
  if (const auto ok = status(); !ok) record.error = ok.error().to_string();
  if (error.state.load(std::memory_order_acquire) == ErrorRecord::kSet) record.culprit = error.culprit;
  for (int r = 0; r < size(); ++r) {
    const RankArea& area = memory_->rank(r);
    record.ranks.push_back({.rank = r,
                            .process = area.process.pid,
                            .has_left = area.left.load(std::memory_order_acquire) != 0,
                            .calls = area.flight.read()});
  }
  return record;
}

void GroupControl::save_flight_record() const {
  if (options_.recorder_folder.empty()) return;
  const auto file = options_.recorder_folder / fmt::format("tandem-{:x}-rank{}.json", nonce(), rank());
  const auto saved = io::WholeFile::put(file, to_json(flight_record()), {.is_private = true});
  log(options_.log_level, LogLevel::kError,
      saved ? fmt::format("group '{}': the last calls of its ranks are in {}: tandem doctor --recorder {}",
                          name(), file.string(), file.string())
            : fmt::format("group '{}': the last calls of its ranks cannot be written to {}: {}", name(),
                          file.string(), saved.error().text()));
}

void GroupControl::leave() {
  own().left.store(1, std::memory_order_release);
  for (int r = 0; r < size(); ++r) {
    if (r != rank()) memory_->rank(r).doorbell.ring_always();
  }
}

void GroupControl::report_death(int dead) {
  if (memory_->rank(dead).left.load(std::memory_order_acquire) != 0) return;
  const int awaited = waited_for_by(dead);
  const std::string doing = awaited < 0 ? "" : fmt::format(" while it waited for rank {}", awaited);
  poison(Error(ErrorCode::kPeerLost, fmt::format("{} died{}", describe_rank(dead), doing)), dead);
}

}  // namespace tandem::bootstrap
