#pragma once

#include <cstdint>
#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>
#include <vector>

namespace tandem::symm {

// An inbox by the rules of inbox.hpp, whose epochs kernels count: it serves ops of which each is one kernel
// that pushes all that it sends. The epoch lies in the rank's own memory. A kernel's threads read it and add
// 1; the last of them to end writes it back. So a recorded kernel counts on, and eager calls and replays may
// take turns.
//
// A word is there when it is the epoch: no rank is two ops ahead of one that still waits, see inbox.hpp. A
// word that no op writes for 2^32 ops would look as if it were there; at 10 us an op that takes 12 hours of
// nothing else.

/// Of one op, in bytes from the start of a rank's block.
struct KernelInboxPlace {
  Handle* handle = nullptr;         ///< lives as long as the group
  std::int64_t counters_bytes = 0;  ///< to two words: the last epoch, and who has ended
  std::int64_t words_bytes = 0;     ///< to the words of even epochs
  std::int64_t words_stride = 0;    ///< from those to the words of odd ones
  std::int64_t data_bytes = 0;
  std::int64_t data_stride = 0;
};

/// The inbox of a group's ops by kernels on one device.
class KernelInbox {
 public:
  /// What an op needs; the same on every rank.
  struct Need {
    std::int64_t data_bytes = 0;
    std::int64_t num_words = 0;
  };

  /// The place of an op that needs so much. Collective when the block is too small, which all ranks find at
  /// the same op; else local, without allocation. Blocks that are too small stay, since recordings may know
  /// them; all together are no larger than the one in use.
  /// Errors:  kInvalidArgument if it is too small and the stream records.
  [[nodiscard]] Result<KernelInboxPlace> place(const Need& need, Group& group, Stream& stream);
  /// The block of the last place.
  [[nodiscard]] const std::shared_ptr<Handle>& block() const { return blocks_.back().handle; }

 private:
  struct Block {
    Tensor tensor;
    std::shared_ptr<Handle> handle;
  };
  [[nodiscard]] Result<void> grow(const Need& need, Group& group, Stream& stream);

  Need capacity_;
  std::vector<Block> blocks_;
};

}  // namespace tandem::symm
