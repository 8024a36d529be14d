#pragma once

// What the waits of a GPU's kernels share with the host: the words that they read while they wait, and the
// fault record that they write when they give up. It is plain data for device and host code. Users do not
// need it.

#include <cstdint>
#include <tandem/base/shape.hpp>

namespace tandem::symm {

/// The call in which a kernel waits.
enum class KernelCall : std::uint32_t {
  kPutSignal,
  kWaitSignal,
  kBarrier,
  kSyncBlocks,
  kAwaitChunk,
  kExchange,
  kAwaitPartial,
  kNanCheck  ///< waits for nobody
};

/// Why a wait gave up. kNan: a check has found NaN, and NanReport says where.
enum class GiveUpReason : std::uint32_t { kNone, kTimeout, kPoisoned, kPeerLeft, kBadArgument, kNan };

/// The fault record of a rank: what its first wait that gave up has written. It is never reset. It lies in
/// the rank's part of the group's control memory, where every rank reads it. Waits without a group have a
/// record in host memory of their own.
struct alignas(64) KernelFault {
  static constexpr std::uint32_t kEmpty = 0, kSet = 1;
  std::uint32_t state = kEmpty;  ///< written last (release, system scope); read first (acquire)
  GiveUpReason reason = GiveUpReason::kNone;
  KernelCall call = KernelCall::kPutSignal;
  std::int32_t peer = -1;
  std::int32_t channel = -1;   ///< kAwaitChunk: the chunk; kExchange: the piece; kAwaitPartial: the block
  std::uint32_t expected = 0;  ///< kBadArgument: the number of channels
  std::uint32_t seen = 0;
  std::uint32_t reserved = 0;
  std::int64_t waited_ns = 0;
};

/// What a check has found in a tensor of a rank. It lies beside the rank's fault record, which is written
/// after it and says that it is complete.
struct alignas(64) NanReport {
  static constexpr int kWhatBytes = 168;
  std::int64_t count = 0;
  std::int64_t first = 0;  ///< index in row-major order
  std::int64_t num_dims = 0;
  std::int64_t sizes[kMaxDims] = {};
  char what[kWhatBytes] = {};  ///< "all_gather f32 [8, 4]: input"
};

/// What KernelHandle::control of a GPU's handle points to, in the memory of that GPU.
struct KernelControl {
  /// One word for each rank, shared by all its rendezvous, in the memory of that GPU. The wait that gives up
  /// first changes it from kWaits to kTelling, writes `fault`, and then changes it to kTold. Later waits of
  /// this rank give up at once, and everything that the rank sends later comes after the record.
  std::uint32_t* has_given_up = nullptr;
  static constexpr std::uint32_t kWaits = 0, kTelling = 1, kTold = 2;
  // The rest lies in the group's control memory, which all its ranks share.
  const std::uint32_t* group_error = nullptr;  ///< not 0 once the group is poisoned
  const std::uint32_t* left = nullptr;         ///< rank 0's word: not 0 once that rank has left the group
  std::int64_t left_stride_bytes = 0;          ///< from one rank's word to the next
  std::uint32_t* waits_for = nullptr;          ///< peer + 1 of a long wait, to find the culprit
  KernelFault* fault = nullptr;
  NanReport* nan_report = nullptr;
  /// What the blocks of a check have found so far, in the memory of that GPU. Checks of one handle run one
  /// after the other, and each leaves it as it was.
  struct NanTotals {
    unsigned long long count = 0;
    unsigned long long first = ~0ULL;
    std::uint32_t num_blocks = 0;  ///< that are done
  } nan_totals;
};

}  // namespace tandem::symm
