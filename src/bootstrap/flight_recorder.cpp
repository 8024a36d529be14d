#include "bootstrap/flight_recorder.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "base/host_clock.hpp"

namespace tandem::bootstrap {
namespace {

/// Sequence numbers wrap.
bool is_before(const CallRecord& a, const CallRecord& b) {
  return static_cast<std::int64_t>(a.sequence - b.sequence) < 0;
}

std::string op_of(const RecordedCall& call) {
  char text[RecordedCall::kOpWords * sizeof(std::uint64_t)];
  for (std::size_t i = 0; i < RecordedCall::kOpWords; ++i) {
    const std::uint64_t word = call.op[i].load(std::memory_order_acquire);
    std::memcpy(text + i * sizeof(word), &word, sizeof(word));
  }
  return {text, ::strnlen(text, sizeof(text))};
}

std::atomic<std::int64_t>* time_of(RecordedCall& call, CallState state) {
  switch (state) {
    case CallState::kAgreed:
      return &call.agreed_ns;
    case CallState::kEnqueued:
      return &call.enqueued_ns;
    case CallState::kEnded:
      return &call.ended_ns;
    case CallState::kEntered:
    case CallState::kRefused:
      return nullptr;
  }
  return nullptr;
}

std::uint64_t code_of(CallState state) {
  return static_cast<std::uint64_t>(state) + 1;
}

std::uint64_t code_of(std::uint64_t word) {
  return word % RecordedCall::kStates;
}

std::uint64_t count_of(std::uint64_t word) {
  return word / RecordedCall::kStates;
}

}  // namespace

std::optional<CallRecord> RecordedCall::read() const {
  const std::uint64_t before = state.load(std::memory_order_acquire);
  // Another process wrote it: it may be anything.
  if (code_of(before) == kFree || code_of(before) > code_of(CallState::kRefused)) return std::nullopt;
  CallRecord record{.sequence = sequence.load(std::memory_order_acquire),
                    .fingerprint = fingerprint.load(std::memory_order_acquire),
                    .op = op_of(*this),
                    .state = static_cast<CallState>(code_of(before) - 1),
                    .entered_ns = entered_ns.load(std::memory_order_acquire),
                    .agreed_ns = agreed_ns.load(std::memory_order_acquire),
                    .enqueued_ns = enqueued_ns.load(std::memory_order_acquire),
                    .ended_ns = ended_ns.load(std::memory_order_acquire)};
  const bool is_same = count_of(state.load(std::memory_order_acquire)) == count_of(before);
  return is_same ? std::optional(std::move(record)) : std::nullopt;
}

void FlightRing::write_op(RecordedCall& call, std::string_view op) {
  char text[RecordedCall::kOpWords * sizeof(std::uint64_t)] = {};
  std::memcpy(text, op.data(), std::min(op.size(), sizeof(text) - 1));
  for (std::size_t i = 0; i < RecordedCall::kOpWords; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, text + i * sizeof(word), sizeof(word));
    call.op[i].store(word, std::memory_order_release);
  }
}

void FlightRing::enter(std::uint64_t sequence, std::uint64_t fingerprint, std::string_view op) {
  RecordedCall& call = place_of(sequence);
  const std::uint64_t place =
      (count_of(call.state.load(std::memory_order_relaxed)) + 1) * RecordedCall::kStates;
  call.state.store(place + RecordedCall::kFree, std::memory_order_relaxed);
  call.sequence.store(sequence, std::memory_order_release);
  call.fingerprint.store(fingerprint, std::memory_order_release);
  call.entered_ns.store(host_now_ns(), std::memory_order_release);
  for (auto* const time : {&call.agreed_ns, &call.enqueued_ns, &call.ended_ns})
    time->store(0, std::memory_order_release);
  write_op(call, op);
  call.state.store(place + code_of(CallState::kEntered), std::memory_order_release);
}

void FlightRing::reach(std::uint64_t sequence, CallState state) {
  RecordedCall& call = place_of(sequence);
  std::uint64_t seen = call.state.load(std::memory_order_acquire);
  const std::uint64_t count = count_of(seen);
  if (call.sequence.load(std::memory_order_relaxed) != sequence) return;
  if (auto* const time = time_of(call, state)) time->store(host_now_ns(), std::memory_order_relaxed);
  const std::uint64_t reached = count * RecordedCall::kStates + code_of(state);
  while (count_of(seen) == count && code_of(seen) != RecordedCall::kFree && seen < reached &&
         !call.state.compare_exchange_weak(seen, reached, std::memory_order_release,
                                           std::memory_order_relaxed)) {
  }
}

void FlightRing::refuse(std::uint64_t sequence, std::string_view why) {
  enter(sequence, 0, why);
  reach(sequence, CallState::kRefused);
}

std::vector<CallRecord> FlightRing::read() const {
  std::vector<CallRecord> found;
  for (const RecordedCall& call : calls) {
    if (auto record = call.read()) found.push_back(*std::move(record));
  }
  std::sort(found.begin(), found.end(), is_before);
  return found;
}

}  // namespace tandem::bootstrap
