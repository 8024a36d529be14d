#pragma once

#include <cstdint>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>

namespace tandem::symm {

// Words in symmetric memory that say which chunks of data have come: the sender puts a chunk, then writes its
// word, behind it on the same stream. Word i is rank i / chunks_per_rank's.

/// Some of the chunks that this rank waits for.
struct AwaitedChunks {
  const std::uint32_t* words = nullptr;  ///< of all chunks
  std::int64_t first = 0;                ///< chunks [first, first + count)
  std::int64_t count = 0;
  std::int64_t chunks_per_rank = 1;
  std::uint32_t expected = 0;  ///< a word w says "is here" once (int32) (w - expected) >= 0
  bool are_relayed = false;  ///< the words: a stream of this rank writes them, behind the senders' own words
};

/// Later work on `stream` comes behind these chunks. Each wait ends as the group's do; the group's error then
/// names rank, peer, chunk, expected and seen value.
[[nodiscard]] Result<void> await_chunks(const Handle& handle, const AwaitedChunks& chunks, Stream& stream);

/// Word `idx` of `words`, which lie in the memory of `peer`, = value, behind what came before on `stream`; a
/// peer that waits for it is woken.
[[nodiscard]] Result<void> write_word(Handle& handle, int peer, const TensorView& words, std::int64_t idx,
                                      std::uint32_t value, Stream& stream);

/// What crosses the simulated link (Config::link_delay) to be read where it lies: a part of what each other
/// rank has for this one.
struct Crossing {
  AwaitedChunks
      told;       ///< word `first` of each rank's chunks says that its part may cross; count: of all words
  int parts = 1;  ///< equal ones, into which the link's time for a rank is cut
  /// As `told.words`, in this rank's memory: a rank's words are written one by one, each behind the link's
  /// time of a part. Null: one part crosses.
  std::uint32_t* arrived = nullptr;
};

/// Later work on `stream` comes behind the link's time for all other ranks, one after the other, in the order
/// in which they tell.
[[nodiscard]] Result<void> cross_link(Handle& handle, const Crossing& crossing, Stream& stream);

/// Words = 0, and then Handle::barrier() on `channel`. On a GPU one kernel does both, and a kernel behind it
/// may begin early: see device/cuda/next_kernel.cuh.
/// Shapes:  words [n], u32, contiguous, on this device.
[[nodiscard]] Result<void> reset_words(Handle& handle, const TensorView& words, int channel, Stream& stream);

}  // namespace tandem::symm
