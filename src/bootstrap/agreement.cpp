// Agreement on collective calls, over the slots of the control memory.
//
// A slot's payload is written before its sequence word (release) and read after it (acquire), so a reader of
// the word sees the whole payload of that call. The payload can not change under the reader: the next call
// that uses the slot is kNumAgreementSlots later, and its writer first waits until every rank's `agreed` has
// reached the old call (release/acquire again). The reader raises its own `agreed` only after it has finished
// reading. This also holds for a reader that finds a *later* call in another slot: its own `agreed` is below
// that call.
#include <algorithm>
#include <cstring>

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
  const AgreementSlot& slot = area.slots[sequence % kNumAgreementSlots];
  seen = slot.sequence.load(std::memory_order_acquire);
  if (seen == sequence) return &slot;
  for (const AgreementSlot& other : area.slots) {
    seen = other.sequence.load(std::memory_order_acquire);
    if (is_reached(seen, sequence)) return &other;
  }
  return nullptr;
}

/// Refused this call, or went past it.
bool is_conflict(const RankArea& area, std::uint64_t sequence) {
  std::uint64_t seen = 0;
  const AgreementSlot* slot = find_slot(area, sequence, seen);
  return slot != nullptr && (seen != sequence || slot->is_refusal != 0);
}

std::string_view text_of(const Fingerprint& fingerprint) {
  return {fingerprint.text, ::strnlen(fingerprint.text, sizeof(fingerprint.text))};
}

}  // namespace

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
    return is_reached(memory_->rank(r).agreed.load(std::memory_order_acquire), sequence - kNumAgreementSlots);
  };
  TANDEM_TRY(wait_for_ranks("agree", deadline, slot_is_free, [] { return false; }));
  AgreementSlot& slot = own().slots[sequence % kNumAgreementSlots];
  slot.is_refusal = is_refusal ? 1 : 0;
  slot.fingerprint = fingerprint;
  slot.sequence.store(sequence, std::memory_order_release);
  ring_everybody();
  return {};
}

void GroupControl::finish_agreement(std::uint64_t sequence, const Fingerprint& fingerprint) {
  {
    const std::lock_guard lock(last_call_mutex_);
    last_sequence_ = sequence;
    last_call_ = fingerprint;
  }
  own().agreed.store(sequence, std::memory_order_release);
  ring_everybody();  // this rank's host thread in wait_agreed(), and ranks that wait for a free slot
}

Result<void> GroupControl::agree(std::uint64_t sequence, const Fingerprint& mine, Deadline deadline) {
  TANDEM_TRY(status());
  TANDEM_TRY(post(sequence, false, mine, deadline));

  const auto has_come = [&](int r) {
    std::uint64_t seen = 0;
    return find_slot(memory_->rank(r), sequence, seen) != nullptr;
  };
  const auto somebody_conflicts = [&] {
    for (int r = 0; r < size(); ++r) {
      if (is_conflict(memory_->rank(r), sequence)) return true;
    }
    return false;
  };
  TANDEM_TRY(wait_for_ranks("agree", deadline, has_come, somebody_conflicts));

  bool all_equal = !somebody_conflicts();
  for (int r = 0; all_equal && r < size(); ++r) {
    all_equal = memory_->rank(r).slots[sequence % kNumAgreementSlots].fingerprint.hash == mine.hash;
  }
  if (!all_equal) {
    poison(disagreement(sequence), -1);
    return status();
  }
  finish_agreement(sequence, mine);
  return {};
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
  const WaitInfo info{.what = "agree"};
  return wait(info, deadline,
              [&] { return is_reached(own().agreed.load(std::memory_order_acquire), sequence); });
}

void GroupControl::refuse(std::uint64_t sequence, const Error& why) {
  const auto deadline = Deadline::after(options_.refuse_timeout);
  const auto fingerprint = Fingerprint::of(why.to_string());
  // A failure here is the group's error already; this rank's caller returns `why`.
  if (!wait_agreed(sequence - 1, deadline)) return;
  if (!post(sequence, true, fingerprint, deadline)) return;
  finish_agreement(sequence, fingerprint);
}

}  // namespace tandem::bootstrap
