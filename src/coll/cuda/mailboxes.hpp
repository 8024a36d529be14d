#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <span>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/symm/kernel.hpp>

#include "coll/cuda/addresses.hpp"
#include "coll/mailbox_bytes.hpp"

namespace tandem::cuda {
class CudaStream;
}

namespace tandem::coll::cuda {

struct Place;

// Where ranks push small shards and chunks for each other: one symmetric block a group, with a box for each
// block of threads, sender and slot. It is an inbox for each block of threads, by the rules of
// symm/inbox.hpp. Block b of a kernel exchanges its piece with block b of every other rank's kernel and with
// nobody else. The epoch of a block counts its exchanges and lies in the GPU's memory, so a recorded kernel
// counts on. Two slots suffice whatever the sizes: block b awaits every other rank in every exchange, and
// kernels of one group follow each other.

/// What a kernel is told; mailboxes.cuh uses it.
struct Mailboxes {
  static constexpr std::int64_t kBoxBytes = 32 * 1024;
  static constexpr int kMostPieces = 64;
  static constexpr std::int64_t kMostBytes = kMostPieces * kBoxBytes;
  static_assert(kMostBytes == kMostMailboxBytes);

  symm::KernelHandle ranks;               ///< whose deadline and whose control memory
  std::byte* blocks[kMaxAddresses] = {};  ///< by rank
  int num_pieces = 0;                     ///< blocks of threads that have boxes; the same on every rank

  /// From the start of a rank's block: a word for each piece, its last epoch there, which is that rank's own.
  [[nodiscard]] __host__ __device__ constexpr std::int64_t epoch_at(int piece) const {
    return 4 * std::int64_t{piece};
  }
  /// A word for each slot, piece and sender: the epoch of what lies in the box.
  [[nodiscard]] __host__ __device__ constexpr std::int64_t word_at(std::uint32_t slot, int piece,
                                                                   int sender) const {
    return 4 * ((std::int64_t{slot} * num_pieces + piece) * ranks.world_size + sender + num_pieces);
  }
  /// A box for each slot, sender and piece.
  [[nodiscard]] __host__ __device__ constexpr std::int64_t box_at(std::uint32_t slot, int piece,
                                                                  int sender) const {
    return words_bytes() +
           ((std::int64_t{slot} * ranks.world_size + sender) * num_pieces + piece) * kBoxBytes;
  }
  [[nodiscard]] __host__ __device__ constexpr std::int64_t words_bytes() const {
    constexpr std::int64_t kAlignment = 128;
    return (word_at(2, 0, 0) + kAlignment - 1) / kAlignment * kAlignment;
  }
  [[nodiscard]] __host__ __device__ constexpr std::int64_t size_bytes() const { return box_at(2, 0, 0); }
  /// Of a shard or chunk.
  [[nodiscard]] __host__ __device__ constexpr std::int64_t max_bytes() const {
    return num_pieces * kBoxBytes;
  }
};

/// How many pieces there are at most. All blocks of a kernel wait at once: where ranks share a GPU, those of
/// all of them, one a multiprocessor, leave half of them for the product that one of the ranks still waits
/// for.
[[nodiscard]] int num_pieces_for(std::span<const Place> places);

/// How so many bytes are cut into pieces, one a block of threads.
struct Pieces {
  int count = 0;
  std::int64_t bytes = 0;  ///< of each but the last; whole vectors of 16 bytes
};
[[nodiscard]] Pieces cut_into_pieces(std::int64_t num_bytes, int max_pieces);

/// The group's mailboxes on the stream's GPU, which are made at the first call: collective then. Nothing
/// where there are none: one rank, more than kMaxAddresses, a rank without memory for them, or the first call
/// while a graph is recorded, which is no time to make memory. From now on `stream` tells what waits for a
/// piece give up for.
[[nodiscard]] Result<std::optional<Mailboxes>> mailboxes_of(Group& group, tandem::cuda::CudaStream& stream);

}  // namespace tandem::coll::cuda
