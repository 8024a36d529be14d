#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <tandem/base/deadline.hpp>
#include <tandem/base/error.hpp>

#include <tandem/bootstrap/flight_record.hpp>

#include "base/executor.hpp"
#include "base/function_ref.hpp"

namespace tandem {
class Group;
}

namespace tandem::bootstrap {

class ControlMemory;

/// What somebody waits for: goes into errors, and into the group's control memory so that another rank's
/// timeout can follow "waits for" to the rank at fault.
struct WaitInfo {
  /// Static text: "wait_signal", "put_signal", "barrier", "agree", "enqueue", "exchange".
  const char* what = "";
  int peer = -1;
  int channel = -1;
  std::uint32_t expected = 0;
  const std::atomic<std::uint32_t>* word = nullptr;  ///< read for the "seen" of an error; may be null
  int chunk = -1;  ///< of data that arrives in chunks: the one that is missing
  int rank = -1;   ///< who waits; -1: this rank
  /// A stream of this rank ends the wait, once it has heard from the peer, who may leave then. If the peer
  /// leaves before, that stream's wait reports it.
  bool is_relayed = false;
  /// Who has to act for the wait to end: the peer's host, whoever runs the peer's call `sequence`, or whoever
  /// runs this rank's own calls up to it. A circle of such waits is found (wait_circles.hpp).
  enum class Actor : std::uint8_t { kUnknown, kHost, kCall, kOwnCall };
  Actor actor = Actor::kUnknown;
  std::uint64_t sequence = 0;
};

/// What all ranks must agree on before an op touches an output. Ranks compare `hash`; `text` names the values
/// in the error that lists every rank's.
struct Fingerprint {
  std::uint64_t hash = 0;
  char text[184] = {};

  /// Truncates `text` to what fits; hashes all of it.
  [[nodiscard]] static Fingerprint of(std::string_view text);
};

/// Its text.
[[nodiscard]] std::string_view text_of(const Fingerprint& fingerprint);

/// The group's control memory: one shared mapping with, per rank, a doorbell, the waits in flight, the
/// agreement slots and a "has left" flag, and one sticky error for all. See docs/design/waiting.md for the
/// protocol and its model. Thread-safe unless noted.
class Control {
 public:
  virtual ~Control() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// Waits until ready() is true: spins for a while, then sleeps on the own doorbell. ready() does the
  /// acquiring load or compare-and-swap itself and is called again after every ring.
  /// Errors: the group's error; kPeerLost when info.peer has left; kTimeout (which poisons the group) naming
  /// the rank at fault, who waited for whom, the signal, expected and seen, and for how long.
  [[nodiscard]] virtual Result<void> wait(const WaitInfo& info, Deadline deadline,
                                          FunctionRef<bool()> ready) = 0;
  /// The same where whoever makes ready() true rings no doorbell, like a stream that writes a word: `nap`
  /// sleeps between two looks in its place. It has to end by itself, soon: what ends a wait early is seen at
  /// a look.
  [[nodiscard]] virtual Result<void> wait(const WaitInfo& info, Deadline deadline, FunctionRef<bool()> ready,
                                          FunctionRef<void()> nap) = 0;

  /// After a store or compare-and-swap that `peer` may be waiting for: wakes it if it sleeps. Contains the
  /// full fence (a seq_cst read-modify-write) that the sleeping protocol needs.
  virtual void ring(int peer) = 0;

  /// Next number in the group's order of collective calls, counted on the host at the time of the call.
  [[nodiscard]] virtual std::uint64_t next_sequence() = 0;
  /// The same, noted in the rank's flight recorder.
  [[nodiscard]] virtual std::uint64_t begin_call(const Fingerprint& mine) = 0;
  /// Notes there how far this rank has come with a call that it has begun.
  virtual void note_reached(std::uint64_t sequence, CallState state) = 0;
  /// Says that the agreement on call `sequence` is queued on a stream, which has a thread of its own.
  virtual void note_queued(std::uint64_t sequence, ExecutorKey stream) = 0;

  /// Posts this rank's fingerprint for `sequence`, waits for everybody's and compares.
  /// Errors: kMismatch on every rank, listing each rank's text and sequence number; poisons the group.
  [[nodiscard]] virtual Result<void> agree(std::uint64_t sequence, const Fingerprint& mine,
                                           Deadline deadline) = 0;

  /// The first half of agree(), for a host that must not wait for the others: posts this rank's fingerprint
  /// and returns. Once every rank has posted, the call is compared inside whatever this rank calls next of
  /// announce, agree, wait_agreed, refuse and compare_announced. Waits only for a free slot: while another
  /// rank is 64 calls behind.
  /// Errors: the group's, kMismatch of an earlier call among them; kTimeout naming the ranks behind.
  [[nodiscard]] virtual Result<void> announce(std::uint64_t sequence, const Fingerprint& mine,
                                              Deadline deadline) = 0;
  /// Compares the announced calls that every rank has posted by now; never waits. Errors: the group's.
  [[nodiscard]] virtual Result<void> compare_announced() = 0;

  /// Last sequence number whose agreement this rank has finished; for a host-side agreement that must come
  /// after those still queued on streams.
  [[nodiscard]] virtual Result<void> wait_agreed(std::uint64_t sequence, Deadline deadline) = 0;

  /// Says that this rank has enqueued all of its calls up to the last number that it has taken. It rings no
  /// doorbell, so it costs one store.
  virtual void note_enqueued() = 0;
  /// Waits until every rank has enqueued as many calls as this one.
  /// Errors: the group's; kPeerLost; kTimeout naming the rank that has not.
  [[nodiscard]] virtual Result<void> wait_enqueued(Deadline deadline) = 0;

  /// Posts "this rank refused call `sequence`: why" instead of a fingerprint: the others get kMismatch with
  /// the text at once instead of waiting. Does not poison this rank by itself. Waits for earlier agreements
  /// first.
  virtual void refuse(std::uint64_t sequence, const Error& why) = 0;

  /// For waits that a device does by itself, this rank's or another's: poison the group with the error that
  /// wait() would have returned.
  virtual void report_timeout(const WaitInfo& info, std::chrono::nanoseconds waited) = 0;
  virtual void report_peer_left(const WaitInfo& info) = 0;

  /// The mapping, for a device that reads the group's error and who has left. Outlives the group while held.
  [[nodiscard]] virtual const std::shared_ptr<ControlMemory>& memory() const = 0;

  /// Whether this process made it. Errors: kInvalidArgument in a child by fork().
  [[nodiscard]] virtual Result<void> check_process() const = 0;
  /// Errors: of check_process(); the error that poisoned the group.
  [[nodiscard]] virtual Result<void> status() const = 0;
  /// First cause wins; wakes every sleeper on every rank.
  virtual void poison(const Error& error, int culprit) = 0;
};

/// The control memory of a group.
[[nodiscard]] Control& control_of(Group& group);

}  // namespace tandem::bootstrap
