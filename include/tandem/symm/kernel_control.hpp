#pragma once

// What the waits of a kernel share with the host, on a GPU: the words they watch while they wait, and the
// record they leave when they give up. Plain data, for device and host code; users need none of it.

#include <cstdint>

namespace tandem::symm {

/// In which call a kernel waits.
enum class KernelCall : std::uint32_t {
  kPutSignal,
  kWaitSignal,
  kBarrier,
  kSyncBlocks,
  kAwaitChunk,
  kExchange
};

/// Why a wait gave up.
enum class GiveUpReason : std::uint32_t { kNone, kTimeout, kPoisoned, kPeerLeft, kBadArgument };

/// What the first wait of a rank that gave up has left, never reset: in the rank's part of the group's
/// control memory, so that every rank hears of it; of waits without a group in host memory of their own.
struct alignas(64) KernelFault {
  static constexpr std::uint32_t kEmpty = 0, kSet = 1;
  std::uint32_t state = kEmpty;  ///< written last, release at system scope; read first, acquire
  GiveUpReason reason = GiveUpReason::kNone;
  KernelCall call = KernelCall::kPutSignal;
  std::int32_t peer = -1;
  std::int32_t channel = -1;   ///< kAwaitChunk: the chunk; kExchange: the piece
  std::uint32_t expected = 0;  ///< kBadArgument: how many channels there are
  std::uint32_t seen = 0;
  std::uint32_t reserved = 0;
  std::int64_t waited_ns = 0;
};

/// KernelHandle::control of a GPU's handle; in the memory of that GPU.
struct KernelControl {
  /// In the memory of that GPU, one a rank for all its rendezvous: kWaits -> kTelling by whoever gives up
  /// first and writes `fault`, -> kTold behind that. Later waits of this rank then give up at once instead of
  /// waiting out a deadline each, and whatever the rank sends after that comes behind the record.
  std::uint32_t* has_given_up = nullptr;
  static constexpr std::uint32_t kWaits = 0, kTelling = 1, kTold = 2;
  // In the group's control memory, which all its ranks share.
  const std::uint32_t* group_error = nullptr;  ///< not 0 once the group is poisoned
  const std::uint32_t* left = nullptr;         ///< of rank 0: not 0 once that rank has left the group
  std::int64_t left_stride_bytes = 0;          ///< from one rank's word to the next
  std::uint32_t* waits_for = nullptr;          ///< peer + 1 of a long wait, for whoever looks for a culprit
  KernelFault* fault = nullptr;
};

}  // namespace tandem::symm
