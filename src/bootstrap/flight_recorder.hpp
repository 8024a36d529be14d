#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>
#include <tandem/bootstrap/flight_record.hpp>
#include <vector>

namespace tandem::bootstrap {

/// A call in a rank's ring, which lies in the group's control memory and so outlives the rank's process. Each
/// word is an atomic, and the op's text is words too: readers look while it changes.
struct alignas(64) RecordedCall {
  static constexpr std::size_t kOpWords = 9;
  static constexpr std::uint32_t kFree = 0;  ///< or being written; else 1 + a CallState
  std::atomic<std::uint32_t> state{kFree};
  std::atomic<std::uint64_t> sequence{0};
  std::atomic<std::uint64_t> fingerprint{0};
  std::atomic<std::int64_t> entered_ns{0};
  std::atomic<std::int64_t> agreed_ns{0};
  std::atomic<std::int64_t> enqueued_ns{0};
  std::atomic<std::int64_t> ended_ns{0};
  std::array<std::atomic<std::uint64_t>, kOpWords> op = {};
};

/// The last calls of one rank, the one with number n at place n % kNumCalls. Several threads of the rank
/// write, but only one at a time about one call; anybody reads.
///
/// A writer of a new call makes the place free, then writes all of it, each word by a release, and kEntered
/// last. A reader takes the state, all words, then the state and the number again, each by an acquire: a
/// place whose call has changed meanwhile is left out.
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
