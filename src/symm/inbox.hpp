#pragma once

#include <cstdint>
#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/event.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>
#include <vector>

namespace tandem::symm {

// Where ranks push data for each other, or let each other read it, without a barrier: one symmetric block
// with two slots of data and two arrays of words, one word a chunk. Op number e (its epoch, from 1) uses slot
// and words e % 2, and a chunk is there once its word has reached e on the circle of u32. Words start at zero
// and only grow. Nothing is ever reset, and no barrier keeps a sender from a slot that is still read.
//
// Why two slots suffice. Rank r sends data of e+2, into the slot of e, after its own op e+1 is over. In that
// op it awaited a word of e+1 of every other rank p. Rank p wrote that word after its own op e was over: the
// copies of a rank, and the products that send, start behind what came before them on the caller's stream. So
// p has read the slot of e before anybody writes it again. This needs every rank to await every other one in
// every op. So ranks without rows are refused, and a rank without columns waits all the same. Model:
// tools/models/native_slots.py.
//
// The same holds where rank r does not push, but leaves its data of e in its own slot and tells its peers,
// who read it there. It writes that slot again in op e+2, after its op e+1, in which it awaited a word of
// every other rank p. Rank p wrote that word after its own op e, with all that it read, was over. Model:
// tools/models/pulled_slots.py.
//
// Memory order of such reads, on CPUs. Data before word: the rank's stream writes both, and the word is a
// release; the look that finds it is an acquire. Over a simulated link the peer's side stream is the one that
// looks, and it tells the caller's stream by a word of its own, in the same way. Reads before they are
// overwritten: p's reads of op e come before its word of e+1 on one thread (its side stream is joined, which
// is an acquire, before the op ends), and that word is a release. Rank r acquires it in op e+1, before its
// own op ends, and writes the slot after that.
//
// The circle needs a bound. A word that the last n ops had no chunk for is n behind, and looks as if it were
// ahead once n reaches 2^31. So an inbox is renewed, with a block of zeros, long before: while its epochs are
// numbers that copy engines have a table of (device/cuda/number_table.hpp).
//
// Data that comes in pieces has a word a piece, its flag, by the same rules. Words of one op may be flags of
// another: whoever writes one, it is the epoch. The mailboxes of small collectives follow the same rules
// block by block, with epochs on the device (coll/cuda/mailboxes.hpp).

/// The memory of one op.
struct InboxSlot {
  Handle* handle = nullptr;  ///< of the block; lives as long as the op is queued
  std::uint32_t epoch = 0;
  std::int64_t data_bytes = 0;   ///< from the block's start to the slot
  std::int64_t words_bytes = 0;  ///< and to the words
  std::int64_t num_words = 0;
  std::int64_t flags_bytes = 0;  ///< and to the flags of pieces, which are words too

  /// The first rows of the slot, on this rank.
  [[nodiscard]] Result<TensorView> data(const Dims& sizes, DType dtype) const;
  [[nodiscard]] Result<TensorView> words(int rank) const;
};

/// The inbox of a group's native gathers on one device.
class Inbox {
 public:
  static constexpr std::uint32_t kLongest = 1U << 20;
  /// What an op needs; the same on every rank.
  struct Need {
    std::int64_t data_bytes = 0;
    std::int64_t num_words = 1;
    std::int64_t num_flags = 0;
  };

  /// `longest`: how many ops a block serves.
  explicit Inbox(std::uint32_t longest = kLongest) : longest_(longest) {}

  /// The slot of the group's next native op, which is the one that `stream` goes on with. Collective when the
  /// block is too small or has served its time, which all ranks find at the same op; else local, without
  /// allocation.
  [[nodiscard]] Result<InboxSlot> next(const Need& need, Group& group, Stream& stream);
  /// What next() returned last.
  [[nodiscard]] const InboxSlot& last() const { return last_; }
  /// The block of that slot.
  [[nodiscard]] const std::shared_ptr<Handle>& block() const { return block_.handle; }

 private:
  struct Block {
    Tensor tensor;
    std::shared_ptr<Handle> handle;
    std::unique_ptr<Event> last_use = {};  ///< of a block that was replaced
  };
  [[nodiscard]] bool fits(const Need& need) const;
  [[nodiscard]] Result<void> replace(const Need& need, Group& group, Stream& stream);
  /// Queued ops use the block: it stays until they have run.
  [[nodiscard]] Result<void> retire(Stream& stream);

  std::uint32_t longest_;
  InboxSlot last_;                                     ///< its epoch counts the ops of the block
  Need capacity_ = {.data_bytes = 0, .num_words = 0};  ///< flags are among the words
  Block block_;
  std::vector<Block> retired_;
};

}  // namespace tandem::symm
