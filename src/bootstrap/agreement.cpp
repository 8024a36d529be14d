// Agreement on collective calls, over the slots of the control memory.
//
// A slot's payload is written before its sequence word (release) and read after it (acquire), so a reader of
// the word sees the whole payload of that call. The payload can not change under the reader: the next call
// that uses the slot is kNumAgreementSlots later, and its writer first waits until every rank's `agreed` has
// reached the old call (release/acquire again). The reader raises its own `agreed` only after it has finished
// reading. This also holds for a reader that finds a *later* call in another slot: its own `agreed` is below
// that call.
//
// `posted` goes up after the slot is written (release), and readers look at it first (acquire): one that sees
// a number at or behind a call sees that call's slot as well, or knows that the rank has skipped the call.
// Without it a reader could look at a slot just before its call is posted, then find a later one elsewhere.
//
// announce() posts and leaves; the call is pending then. Pending calls are compared in the order of their
// numbers by whatever thread of this rank comes by, one at a time (pending_mutex_), and `agreed` goes up call
// by call, so all of the above holds for them too. Every wait of this file compares what is pending whenever
// it looks: the others may be waiting for this rank's `agreed`. A host that calls nothing more holds up
// nobody: to post call n it had to see every rank's `agreed` at n - kNumAgreementSlots, so all those calls
// were posted and its own comparison, right after the post, has passed them as well.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/format.hpp"
#include "base/try.hpp"
#include "bootstrap/group_control.hpp"

namespace tandem::bootstrap {
namespace {

/// Wrap-safe order of sequence numbers.
bool is_reached(std::uint64_t seen, std::uint64_t wanted) {
  return static_cast<std::int64_t>(seen - wanted) >= 0;
}

/// The rank's slot for `sequence`, or for a later call if the rank has skipped this one; null if it is not
/// there yet.
const AgreementSlot* find_slot(const RankArea& area, std::uint64_t sequence, std::uint64_t& seen) {
  const std::uint64_t posted = area.posted.load(std::memory_order_acquire);
  if (!is_reached(posted, sequence)) return nullptr;
  const AgreementSlot& slot = area.slots[sequence % kNumAgreementSlots];
  seen = slot.sequence.load(std::memory_order_acquire);
  if (seen == sequence) return &slot;
  seen = posted;
  return &area.slots[posted % kNumAgreementSlots];
}

/// Streams of one rank may post at the same time: the number never goes back.
void raise(std::atomic<std::uint64_t>& posted, std::uint64_t sequence) {
  std::uint64_t seen = posted.load(std::memory_order_relaxed);
  while (
      !is_reached(seen, sequence) &&
      !posted.compare_exchange_weak(seen, sequence, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

}  // namespace

std::string_view text_of(const Fingerprint& fingerprint) {
  return {fingerprint.text, ::strnlen(fingerprint.text, sizeof(fingerprint.text))};
}

Fingerprint Fingerprint::of(std::string_view text) {
  Fingerprint fingerprint;
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  fingerprint.hash = hash;
  const std::size_t length = std::min(text.size(), sizeof(fingerprint.text) - 1);
  std::memcpy(fingerprint.text, text.data(), length);
  return fingerprint;
}

Result<void> GroupControl::post(std::uint64_t sequence, bool is_refusal, const Fingerprint& fingerprint,
                                Deadline deadline) {
  const auto slot_is_free = [&](int r) {
    compare_pending();
    return is_reached(memory_->rank(r).agreed.load(std::memory_order_acquire), sequence - kNumAgreementSlots);
  };
  TANDEM_TRY(wait_for_ranks({.what = "agree"}, deadline, slot_is_free, [] { return false; }));
  AgreementSlot& slot = own().slots[sequence % kNumAgreementSlots];
  slot.is_refusal = is_refusal ? 1 : 0;
  slot.fingerprint = fingerprint;
  slot.sequence.store(sequence, std::memory_order_release);
  raise(own().posted, sequence);
  ring_everybody();
  return {};
}

GroupControl::Verdict GroupControl::compare(std::uint64_t sequence) const {
  const std::uint64_t mine = own().slots[sequence % kNumAgreementSlots].fingerprint.hash;
  bool all_there = true;
  bool all_equal = true;
  for (int r = 0; r < size(); ++r) {
    std::uint64_t seen = 0;
    const AgreementSlot* slot = find_slot(memory_->rank(r), sequence, seen);
    all_there = all_there && slot != nullptr;
    if (slot == nullptr) continue;
    // A rank that refused this call, or went past it, changes its mind no more: no need to wait for the rest.
    if (seen != sequence || slot->is_refusal != 0) return Verdict::kDifferent;
    all_equal = all_equal && slot->fingerprint.hash == mine;
  }
  if (!all_there) return Verdict::kPending;
  return all_equal ? Verdict::kEqual : Verdict::kDifferent;
}

void GroupControl::compare_pending() {
  if (num_pending_.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(pending_mutex_);
  while (num_pending_.load(std::memory_order_relaxed) > 0) {
    if (memory_->header().error.state.load(std::memory_order_acquire) != ErrorRecord::kNone) return;
    const std::uint64_t sequence = pending_[first_pending_ % kNumAgreementSlots];
    const Verdict verdict = compare(sequence);
    if (verdict == Verdict::kPending) return;
    if (verdict == Verdict::kDifferent) return poison(disagreement(sequence), -1);
    finish_agreement(sequence, own().slots[sequence % kNumAgreementSlots].fingerprint);
    ++first_pending_;
    num_pending_.fetch_sub(1, std::memory_order_relaxed);
  }
}

void GroupControl::finish_agreement(std::uint64_t sequence, const Fingerprint& fingerprint) {
  {
    const std::lock_guard lock(last_call_mutex_);
    last_sequence_ = sequence;
    last_call_ = fingerprint;
  }
  note_reached(sequence, CallState::kAgreed);
  own().agreed.store(sequence, std::memory_order_release);
  ring_everybody();  // this rank's host thread in wait_agreed(), and ranks that wait for a free slot
}

bool GroupControl::is_agreed(std::uint64_t sequence) const {
  return is_reached(own().agreed.load(std::memory_order_acquire), sequence);
}

Result<void> GroupControl::announce(std::uint64_t sequence, const Fingerprint& mine, Deadline deadline) {
  TANDEM_TRY(status());
  TANDEM_TRY(post(sequence, false, mine, deadline));
  {
    const std::lock_guard lock(pending_mutex_);
    const std::uint64_t last = first_pending_ + num_pending_.fetch_add(1, std::memory_order_relaxed);
    pending_[last % kNumAgreementSlots] = sequence;
  }
  return compare_announced();
}

Result<void> GroupControl::compare_announced() {
  compare_pending();
  return status();
}

Result<void> GroupControl::agree(std::uint64_t sequence, const Fingerprint& mine, Deadline deadline) {
  TANDEM_TRY(announce(sequence, mine, deadline));
  const auto has_come = [&](int r) {
    std::uint64_t seen = 0;
    return find_slot(memory_->rank(r), sequence, seen) != nullptr;
  };
  const auto is_done = [&] {
    compare_pending();
    return is_agreed(sequence);
  };
  const WaitInfo info{.what = "agree", .actor = WaitInfo::Actor::kCall, .sequence = sequence};
  TANDEM_TRY(wait_for_ranks(info, deadline, has_come, is_done));
  return wait_agreed(sequence, deadline);
}

Error GroupControl::disagreement(std::uint64_t sequence) const {
  std::string text = fmt::format("ranks disagree about call #{}:", sequence);
  for (int r = 0; r < size(); ++r) {
    std::uint64_t seen = 0;
    const AgreementSlot* slot = find_slot(memory_->rank(r), sequence, seen);
    text += fmt::format("{} rank {}", r == 0 ? "" : ";", r);
    if (slot == nullptr) {
      text += " is not there yet";
    } else if (slot->is_refusal != 0) {
      text += fmt::format(" refused #{}: {}", seen, text_of(slot->fingerprint));
    } else {
      text += fmt::format(" runs #{} '{}'", seen, text_of(slot->fingerprint));
    }
  }
  return Error(ErrorCode::kMismatch, std::move(text));
}

Result<void> GroupControl::wait_agreed(std::uint64_t sequence, Deadline deadline) {
  const WaitInfo info{.what = "agree", .actor = WaitInfo::Actor::kOwnCall, .sequence = sequence};
  return wait(info, deadline, [&] {
    compare_pending();
    return is_agreed(sequence);
  });
}

void GroupControl::note_enqueued() {
  own().enqueued.store(own().issued.load(std::memory_order_relaxed), std::memory_order_release);
}

Result<void> GroupControl::wait_enqueued(Deadline deadline) {
  constexpr std::chrono::microseconds kNap(20);
  const std::uint64_t last = own().enqueued.load(std::memory_order_relaxed);
  for (int r = 0; r < size(); ++r) {
    const auto has_enqueued = [&] {
      return is_reached(memory_->rank(r).enqueued.load(std::memory_order_acquire), last);
    };
    TANDEM_TRY(wait({.what = "enqueue", .peer = r}, deadline, has_enqueued,
                    [&] { std::this_thread::sleep_for(kNap); }));
  }
  return {};
}

void GroupControl::refuse(std::uint64_t sequence, const Error& why) {
  const auto deadline = Deadline::after(options_.refuse_timeout);
  const auto fingerprint = Fingerprint::of(why.to_string());
  own().flight.refuse(sequence, text_of(fingerprint));
  // A failure here is the group's error already; this rank's caller returns `why`.
  if (!wait_agreed(sequence - 1, deadline)) return;
  if (!post(sequence, true, fingerprint, deadline)) return;
  finish_agreement(sequence, fingerprint);
}

}  // namespace tandem::bootstrap
