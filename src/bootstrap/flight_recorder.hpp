#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tandem/bootstrap/flight_record.hpp>
#include <vector>

namespace tandem::bootstrap {

/// A call in a rank's ring, which lies in the group's control memory and so outlives the rank's process. Each
/// word is an atomic, and the op's text is words too: readers look while it changes.
struct alignas(64) RecordedCall {
  static constexpr std::size_t kOpWords = 9;
  static constexpr std::uint64_t kFree = 0;  ///< or being written; else 1 + a CallState
  static constexpr std::uint64_t kStates = 256;
  /// The state, plus kStates times how often the place was written: no two calls of a place share that count,
  /// nor does a call that was entered share it with its refusal.
  std::atomic<std::uint64_t> state{kFree};
  std::atomic<std::uint64_t> sequence{0};
  std::atomic<std::uint64_t> fingerprint{0};
  std::atomic<std::int64_t> entered_ns{0};
  std::atomic<std::int64_t> agreed_ns{0};
  std::atomic<std::int64_t> enqueued_ns{0};
  std::atomic<std::int64_t> ended_ns{0};
  std::array<std::atomic<std::uint64_t>, kOpWords> op = {};

  /// Nothing for a place that is free, or changes just now.
  [[nodiscard]] std::optional<CallRecord> read() const;
};

/// The last calls of one rank, the one with number n at place n % kNumCalls. Several threads of the rank
/// write, but only one at a time about one call; anybody reads.
///
/// A writer of a new call counts the place's writes on and makes it free, then writes all of it, each word by
/// a release, and kEntered last. A reader takes the state, all words, then the state again, each by an
/// acquire. A reader that took any word of a later call sees that call's count, or one behind it, in the end:
/// a place whose count has changed is left out.
struct FlightRing {
  static constexpr std::uint64_t kNumCalls = 2048;
  std::array<RecordedCall, kNumCalls> calls;

  void enter(std::uint64_t sequence, std::uint64_t fingerprint, std::string_view op);
  /// Of a call that has been entered; it never goes back. Nothing if its place has another call by now.
  void reach(std::uint64_t sequence, CallState state);
  /// The call's text becomes `why`.
  void refuse(std::uint64_t sequence, std::string_view why);
  /// In the order of their numbers.
  [[nodiscard]] std::vector<CallRecord> read() const;

 private:
  [[nodiscard]] RecordedCall& place_of(std::uint64_t sequence) { return calls[sequence % kNumCalls]; }
  static void write_op(RecordedCall& call, std::string_view op);
};

}  // namespace tandem::bootstrap
