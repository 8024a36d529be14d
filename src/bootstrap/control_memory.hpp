#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <tandem/base/core_rates.hpp>
#include <tandem/base/error.hpp>
#include <tandem/base/unique_fd.hpp>
#include <tandem/cost/gpu_times.hpp>

#include "base/function_ref.hpp"
#include "base/usable_cores.hpp"
#include "bootstrap/control.hpp"
#include "bootstrap/doorbell.hpp"
#include "bootstrap/flight_recorder.hpp"
#include "bootstrap/process_id.hpp"

namespace tandem::bootstrap {

// The layout that all ranks of a group map. Words are atomics; everything else is payload, written before the
// word that announces it and not changed until all readers are known to be done (each place says how).

/// The group's first error. `state` goes 0 -> 1 by compare-and-swap (whoever wins writes) -> 2 (readable,
/// final).
struct ErrorRecord {
  static constexpr std::uint32_t kNone = 0, kWriting = 1, kSet = 2;
  std::atomic<std::uint32_t> state{kNone};
  std::int32_t code = 0;
  std::int32_t culprit = -1;
  std::int64_t native_code = 0;
  static constexpr int kMostGroups = 8;
  std::uint64_t circle[kMostGroups] = {};  ///< the groups, by nonce, of a circle of waits that is the error
  char text[4000] = {};
};

/// What keeps those from acting that a rank's peers wait for: who waits for whom from there on, as far as the
/// rank knows. See wait_circles.hpp. Written by one thread at a time; `version` is odd while it is written.
/// The payload is words, since readers read while it changes, and look at `version` again.
struct BlockedRecord {
  static constexpr std::size_t kNumWords = 385;
  std::atomic<std::uint64_t> version{0};
  std::atomic<std::uint64_t> words[kNumWords] = {};
};

/// What one rank says about one call. A slot is reused for `sequence + kNumAgreementSlots` only after every
/// rank has finished with `sequence` (its `agreed` says so), so whoever reads the payload after the word can
/// not meet the next writer.
struct alignas(64) AgreementSlot {
  std::atomic<std::uint64_t> sequence{0};
  std::uint32_t is_refusal = 0;
  Fingerprint fingerprint;
};
/// As many calls a rank may be ahead of the slowest one.
inline constexpr std::uint64_t kNumAgreementSlots = 64;

/// One piece of what a rank gives to an exchange. The owner writes round n after every rank has taken round n
/// - 1.
struct alignas(64) ExchangeSlot {
  static constexpr std::size_t kPieceBytes = 1024;
  std::atomic<std::uint64_t> posted{0};
  std::atomic<std::uint64_t> taken{0};
  std::uint64_t total_bytes = 0;
  char what[48] = {};
  std::byte piece[kPieceBytes] = {};
};

struct alignas(64) RankArea {
  Doorbell doorbell;
  std::atomic<std::uint32_t> left{0};
  ProcessId process;                       ///< written before the memory is shared
  CoreSet cores;                           ///< that the rank may run on; by the rank before it joins
  std::int32_t granted_cores = 0;          ///< see usable_cores.hpp; as above
  std::atomic<std::uint64_t> agreed{0};    ///< last call whose agreement this rank has finished
  std::atomic<std::uint64_t> posted{0};    ///< last call that this rank has put into a slot
  std::atomic<std::uint64_t> issued{0};    ///< last call whose number this rank's host has taken
  std::atomic<std::uint64_t> enqueued{0};  ///< last call of which this rank has enqueued all
  static constexpr int kNumWaits = 8;
  std::atomic<std::int32_t> waits_for[kNumWaits] = {};  ///< peer + 1 of a thread's wait, 0 if free
  std::atomic<std::int32_t> device_waits_for{0};  ///< the same of a kernel's long wait; stored by the device
  // Barriers of streams: see src/symm/cuda/stream_barriers.hpp. Stored by devices, but the first.
  static constexpr int kMostStreamRanks = 64;
  static constexpr std::uint32_t kStreamsWait = 1, kKernelsWait = 2;
  /// One of those, by how the rank's GPU can wait, once the rank has symmetric memory on one.
  std::atomic<std::uint32_t> waits_by{0};
  /// turn * kMostStreamRanks + peer + 1 of the wait that is under way; 0: none. At its end both words are
  /// written as one of 64 bits.
  alignas(8) std::atomic<std::uint32_t> stream_waits{0};
  std::atomic<std::uint32_t> stream_wait_ended{0};  ///< 1: one has ended since the host looked
  alignas(64) std::atomic<std::uint32_t> stream_puts[2][kMostStreamRanks] = {};  ///< by turn and source
  /// What the first wait of a kernel that gave up has left, for every rank to see; of the device that wrote
  /// it.
  alignas(64) std::byte device_record[64] = {};
  /// The NaN that a check of the rank's kernels has found, if the record above says so.
  alignas(64) std::byte nan_report[256] = {};
  AgreementSlot slots[kNumAgreementSlots];
  ExchangeSlot exchange;
  BlockedRecord host_blocked;  ///< of the host thread that uses the group
  BlockedRecord call_blocked;  ///< of who runs the call behind `posted`, if that is issued
  FlightRing flight;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "the words are shared by processes");

/// What a group's control memory is made of; the receiver checks it.
struct ControlIdentity {
  std::int32_t num_ranks = 1;
  std::uint64_t nonce = 0;           ///< of this life of the group
  std::uint64_t first_sequence = 1;  ///< number of the first call; tests start near the wrap-around
};

/// The speeds of a core that all ranks predict with: see group_rates.hpp. A word is 0 until it is known, and
/// never changes then.
struct RateBoard {
  CoreRates given;  ///< by rank 0's configuration; written before the memory is shared
  std::atomic<std::uint32_t> is_measuring{0};             ///< 1 while a rank finds out what is missing
  std::atomic<std::uint64_t> per_us[kNumCoreRates] = {};  ///< bits of doubles
};

struct ControlHeader {
  static constexpr std::uint64_t kMagic = 0x74616e64656d4354;
  static constexpr std::uint32_t kVersion = 8;
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  ControlIdentity identity;
  /// Rank 0's, written before the memory is shared: what a rank has forgotten decides where the ranks meet on
  /// the host, so all have to forget alike.
  std::int32_t max_plans = 0;
  ErrorRecord error;
  RateBoard rates;
  cost::GpuTimes gpu_times;  ///< that rank 0 found; written before the memory is shared
};

/// Owns one mapping of a group's control memory.
class ControlMemory {
 public:
  /// For ranks that are threads of this process.
  [[nodiscard]] static Result<std::shared_ptr<ControlMemory>> create_for_threads(
      const ControlIdentity& identity, std::span<const ProcessId> processes);
  /// For ranks that are processes: also a file to hand to them, sealed against any change of its size.
  [[nodiscard]] static Result<std::shared_ptr<ControlMemory>> create_for_processes(
      const ControlIdentity& identity, std::span<const ProcessId> processes, UniqueFd& file);
  /// Maps what rank 0 sent. Errors: kInvalidArgument for a file that is not control memory of `expected`:
  /// another kind of file, another size, not sealed, another group.
  [[nodiscard]] static Result<std::shared_ptr<ControlMemory>> open(UniqueFd file,
                                                                   const ControlIdentity& expected);

  ~ControlMemory();
  ControlMemory(const ControlMemory&) = delete;
  ControlMemory& operator=(const ControlMemory&) = delete;

  [[nodiscard]] ControlHeader& header() const { return *static_cast<ControlHeader*>(address_); }
  [[nodiscard]] int num_ranks() const { return num_ranks_; }
  [[nodiscard]] RankArea& rank(int rank) const;
  [[nodiscard]] std::span<std::byte> bytes() const;

  /// One object of a higher layer that lives as long as this mapping and ends before it; made by whoever asks
  /// first, since ranks that are threads share the mapping. Thread-safe.
  using Attachment = std::shared_ptr<void>;
  [[nodiscard]] Result<Attachment> attachment(FunctionRef<Result<Attachment>()> make);

 private:
  ControlMemory(void* address, int num_ranks) : address_(address), num_ranks_(num_ranks) {}
  static Result<std::shared_ptr<ControlMemory>> map(int fd, int num_ranks);
  void initialise(const ControlIdentity& identity, std::span<const ProcessId> processes);

  void* address_;
  std::mutex attachment_mutex_;
  Attachment attachment_;
  int num_ranks_;  // not read from the shared memory: bounds must not depend on what a peer writes
};

}  // namespace tandem::bootstrap
