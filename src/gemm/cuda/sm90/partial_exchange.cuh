#pragma once

// Partial sums on their way from inside a kernel that multiplies to the ranks that own them, and how an owner
// adds them. Tiles are taken owner by owner, the own ones last. Blocks travel in the order in which threads
// hold their sums, so nobody rearranges them: thread t of a warp group stores two vectors of a block, and
// thread t of the owner's warp group loads them. See gemm/partial_grid.hpp.
//
// Who sends. A CTA with more tiles to come stages a tile in its GPU's memory, and a warp of its own pushes it
// from there, at a rate: stores of all multiprocessors to peers at one time hold up what their products load.
// A CTA's last tile goes to the peer directly, since nothing is left there that it could hold up.
//
// Tiles that owners share. All go to the peers directly, each row to its owner, or to all where all ranks own
// all rows. A tile has own rows too, whose sums are put aside until the CTA has sent its last tile: nobody
// waits before that, so that ranks may take their tiles in different orders.
//
// Memory order.
//   Staged strip.   All threads of a warp group store it and meet; one of them then releases its number in
//                   shared memory, which the pushing warp acquires. Backwards the same: a strip's room is
//                   used again behind an acquire of the number of pushed ones.
//   Blocks, words.  All threads that store blocks meet (a warp, or a warp group); then a thread for each word
//                   has a fence of the system's scope and stores the word. The fence is cumulative.
//   Owner.          A warp polls the words of a strip, relaxed, and then acquires each of them. Behind a
//                   __syncwarp() it releases the strip's number in shared memory, which the threads that add
//                   acquire. They read blocks by plain loads, past the first-level cache.
//   Epoch.          See symm/kernel_inbox.hpp. A thread of each CTA reads it before the CTA's parties begin;
//                   the last party of all to end writes it. Kernels of a group follow each other.

#include <tandem/cuda/note_wait.cuh>
#include <tandem/symm/kernel_device.cuh>
#include <utility>

#include "gemm/cuda/sm90/partial_exchange.hpp"
#include "gemm/cuda/sm90/piece_words.cuh"
#include "gemm/cuda/sm90/rounded_pairs.cuh"
#include "gemm/cuda/sm90/sum_rows.cuh"

namespace tandem::gemm::cuda {

/// Threads of a warp group, which hold a strip of a tile.
inline constexpr int kStripThreads = 128;
inline constexpr int kVectorBytes = 16;
/// From a thread's first vector of a block to its second.
inline constexpr int kVectorStride = kStripThreads * kVectorBytes;
static_assert(PartialGrid::kBytes == 2 * kVectorStride);

/// What the warps of a CTA tell each other, set by begin_exchange() before any of them looks.
struct PartialCounts {
  std::uint32_t epoch;  ///< of this kernel
  // Strips, a word a warp group.
  std::uint32_t staged[2];
  std::uint32_t pushed[2];
  std::uint32_t arrived[2];  ///< own ones, of which all other ranks' blocks are there
  // Where waits are noted.
  std::uint32_t sender[2];      ///< whose blocks the next own strip lacks
  std::int64_t waits_since[2];  ///< when a warp group began to wait
};

/// A tile of the product: its owner's rows count in tiles from the owner's first one.
struct OwnedTile {
  int owner;
  int row;
  int column;
};

/// What a warp group holds of a tile.
struct Strip {
  int owner = 0;
  int number = 0;  ///< of the owner's strips
  int first = 0;   ///< block
  int count = 0;   ///< blocks inside of the matrix; 0: no row or no column of it is

  [[nodiscard]] __device__ bool has_any_of(const StripRows& rows) const {
    return rows.begin < (number + 1) * PartialGrid::kRows && rows.end > number * PartialGrid::kRows;
  }
};
/// Whether this rank owns rows of it.
__device__ inline bool is_own(const PartialExchange& exchange, const Strip& strip) {
  const int rank = exchange.ranks.rank;
  return strip.count > 0 && strip.owner == rank && strip.has_any_of(exchange.owned_by(rank));
}

template <int kColumns>
__device__ inline Strip strip_of(const PartialExchange& exchange, const OwnedTile& tile, int group) {
  constexpr int kBlocks = kColumns / PartialGrid::kColumns;
  Strip strip{tile.owner, 2 * tile.row + group, tile.column * kBlocks, 0};
  if (strip.number * PartialGrid::kRows < exchange.rows_of(tile.owner))
    strip.count = min(kBlocks, exchange.grid.columns - strip.first);
  return strip;
}

__device__ inline std::byte* block_of_rank(const PartialExchange& exchange, int rank) {
  return static_cast<std::byte*>(exchange.ranks.buffers[rank]);
}
__device__ inline std::uint32_t* counters_of(const PartialExchange& exchange) {
  return reinterpret_cast<std::uint32_t*>(block_of_rank(exchange, exchange.ranks.rank) +
                                          exchange.counters_bytes);
}
/// The first block of `strip` that comes from `sender`, and its word, at the strip's owner.
__device__ inline std::byte* blocks_at(const PartialExchange& exchange, std::uint32_t epoch,
                                       const Strip& strip, int sender) {
  const std::int64_t index = exchange.grid.index(strip.owner, sender, strip.number, strip.first);
  return block_of_rank(exchange, strip.owner) + exchange.data_bytes + epoch % 2 * exchange.data_stride +
         index * PartialGrid::kBytes;
}
__device__ inline std::uint32_t* words_at(const PartialExchange& exchange, std::uint32_t epoch,
                                          const Strip& strip, int sender) {
  const std::int64_t index = exchange.grid.index(strip.owner, sender, strip.number, strip.first);
  return reinterpret_cast<std::uint32_t*>(block_of_rank(exchange, strip.owner) + exchange.words_bytes +
                                          epoch % 2 * exchange.words_stride) +
         index;
}

/// By one thread, before the parties of its CTA begin.
__device__ inline void begin_exchange(const PartialExchange& exchange, PartialCounts& counts) {
  counts = {};
  counts.epoch = counters_of(exchange)[0] + 1;
}
/// By one thread of each party, behind all that the party does.
__device__ inline void end_exchange(const PartialExchange& exchange, std::uint32_t epoch) {
  std::uint32_t* const counters = counters_of(exchange);
  __threadfence();
  if (atomicAdd(counters + 1, 1U) + 1 != static_cast<std::uint32_t>(exchange.parties)) return;
  counters[1] = 0;
  counters[0] = epoch;
}

/// By lanes [0, strip.count) of a warp: block number `lane` of a strip is there.
__device__ inline void publish_blocks(const PartialExchange& exchange, std::uint32_t epoch,
                                      const Strip& strip, int lane) {
  if (lane >= strip.count) return;
  std::uint32_t* const words = words_at(exchange, epoch, strip, exchange.ranks.rank);
  fence_system();
  symm::detail::store_relaxed(words + lane, epoch);
}

/// Where this CTA stages a strip.
template <int kColumns>
__device__ std::byte* staged_strip(const PartialExchange& exchange, std::uint32_t number, int group) {
  const auto cta = static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x);
  constexpr int kStripBytes = kColumns / PartialGrid::kColumns * PartialGrid::kBytes;
  return exchange.staged +
         ((std::int64_t{cta} * kStagedTiles + number % kStagedTiles) * 2 + group) * kStripBytes;
}

/// A thread's sums of blocks side by side, as num_sum_groups() and sum_at() have them.
template <int kBlocks>
struct BlockSums {
  float values[kBlocks * 16];
};
template <int kBlocks>
__host__ __device__ constexpr int num_sum_groups(const BlockSums<kBlocks>&) {
  return kBlocks * 4;
}
template <int kBlocks>
__device__ inline float& sum_at(BlockSums<kBlocks>& sums, int group, int row, int pair) {
  return sums.values[group * 4 + row * 2 + pair];
}
template <int kBlocks>
__device__ inline const float& sum_at(const BlockSums<kBlocks>& sums, int group, int row, int pair) {
  return sums.values[group * 4 + row * 2 + pair];
}

/// By a warp group, which has sums of two rows and two columns of every eight: at(group of eight columns,
/// row, column of two) is one of them. Its tiles in their order. What it keeps is little: most registers
/// have sums. What takes `at` is always inlined: a call would put the sums into memory.
template <int kColumns, bool kIsHalf>
class PartialTiles {
 public:
  static constexpr int kBlocks = kColumns / PartialGrid::kColumns;

  __device__ PartialTiles(const PartialExchange& exchange, PartialCounts& counts, int group)
      : exchange_(exchange), counts_(counts), group_(group) {}

  /// Whether this rank owns rows that this group has of a tile.
  [[nodiscard]] __device__ bool is_own(const OwnedTile& tile) const {
    return cuda::is_own(exchange_, strip_of<kColumns>(exchange_, tile, group_));
  }

  /// What peers own of a tile.
  template <class At>
  __device__ __forceinline__ void send(const OwnedTile& tile, bool is_last, At at) {
    const Strip strip = strip_of<kColumns>(exchange_, tile, group_);
    if (strip.count == 0) return;
    if (exchange_.grid.shares_tiles) return send_shared(strip, at);
    if (strip.owner == exchange_.ranks.rank) return;
    if (!is_last) await_room();
    store(strip,
          is_last ? blocks_at(exchange_, counts_.epoch, strip, exchange_.ranks.rank)
                  : staged_strip<kColumns>(exchange_, staged_, group_),
          at);
    sync_warp_group(group_);
    if (is_last) return publish_blocks(exchange_, counts_.epoch, strip, thread());
    ++staged_;
    if (thread() == 0) store_release(shared_address(&counts_.staged[group_]), staged_);
  }

  /// The sums of an own tile that is shared, for settle(). Each such tile has a place, in their order.
  template <class At>
  __device__ __forceinline__ void put_aside(At at) {
    const int place = num_aside();
    ++own_;
#pragma unroll
    for (int group = 0; group < kBlocks * kAsideVectors; ++group) {
      *aside(place, group) = make_float4(at(group, 0, 0), at(group, 0, 1), at(group, 1, 0), at(group, 1, 1));
    }
  }

  /// An own tile that was put aside: some blocks at a time of the sums over all ranks, as add() makes them.
  /// store(first block, sums) gets them.
  template <class Store>
  __device__ __forceinline__ void settle(const OwnedTile& tile, int place, Store store) {
    const Strip strip = strip_of<kColumns>(exchange_, tile, group_);
    await_peers();
#pragma unroll 1
    for (int first = 0; first < strip.count; first += kSettledBlocks) {
      BlockSums<kSettledBlocks> sums;
      const auto at = [&](int group, int row, int pair) -> float& { return sum_at(sums, group, row, pair); };
#pragma unroll
      for (int group = 0; group < kSettledBlocks * kAsideVectors; ++group) {
        const float4 values = *aside(place, first * kAsideVectors + group);
        at(group, 0, 0) = values.x;
        at(group, 0, 1) = values.y;
        at(group, 1, 0) = values.z;
        at(group, 1, 1) = values.w;
      }
      if (exchange_.rounds_own) round<kSettledBlocks>(at);
      if (first + kSettledBlocks <= strip.count) {
        add_ranks(strip, first, Sums<kSettledBlocks, decltype(at)>{at, 0});
      } else {
#pragma unroll
        for (int block = 0; block < kSettledBlocks; ++block) {
          if (first + block < strip.count) add_ranks(strip, first + block, Sums<1, decltype(at)>{at, block});
        }
      }
      finish<kSettledBlocks>(tile.column * kColumns + first * PartialGrid::kColumns, at);
      store(first, sums);
    }
  }

  /// An own tile, whose sums become those over all ranks, in the order of the ranks.
  template <class At>
  __device__ __forceinline__ void add(const OwnedTile& tile, At at) {
    const Strip strip = strip_of<kColumns>(exchange_, tile, group_);
    if (exchange_.rounds_own) round<kBlocks>(at);
    ++own_;
    await_peers();
    // As many blocks at a time as there are registers for: each waits for memory once.
    if (exchange_.ranks.rank > 1) {
      add_in_batches<kFewBlocks>(strip, at, [&](int block, auto sums) { add_ranks(strip, block, sums); });
    } else {
      add_in_batches<kManyBlocks>(strip, at, [&](int block, auto sums) {
        const std::byte* sender = first_sender(strip, block);
        for (int i = 0; i < exchange_.ranks.world_size - 1; ++i, sender += of_sender())
          add_vectors<decltype(sums)::kBlocks>(sender, sums);
      });
    }
    finish<kBlocks>(tile.column * kColumns, at);
  }

  /// How many were put aside, if tiles are shared.
  [[nodiscard]] __device__ int num_aside() const {
    return static_cast<int>(own_);
  }

  /// Behind all tiles.
  __device__ void end() {
    sync_warp_group(group_);
    if (thread() == 0) end_exchange(exchange_, counts_.epoch);
  }

 private:
  /// Of the group. (A register that held it would be missing elsewhere.)
  [[nodiscard]] __device__ static int thread() {
    return static_cast<int>(threadIdx.x) % kStripThreads;
  }
  /// This thread's vector of a block: of one of its two rows.
  template <class At>
  [[nodiscard]] __device__ __forceinline__ static uint4 vector_of(int block, int row, At at) {
    const auto pair = [&](int i) {
      return rounded_pair<kIsHalf>(at(block * 4 + i, row, 0), at(block * 4 + i, row, 1));
    };
    return make_uint4(pair(0), pair(1), pair(2), pair(3));
  }
  template <class At>
  __device__ __forceinline__ void store(const Strip& strip, std::byte* to, At at) const {
    to += thread() * kVectorBytes;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      if (block >= strip.count) continue;
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        *reinterpret_cast<uint4*>(to + block * PartialGrid::kBytes + row * kVectorStride) =
            vector_of(block, row, at);
      }
    }
  }

  /// f(strip as a peer's, the rows of it that the peer owns) for each peer that owns any.
  template <class F>
  __device__ __forceinline__ void for_owning_peers(Strip strip, F f) const {
    const int rank = strip.owner;
#pragma unroll 1
    for (int peer = 0; peer < exchange_.ranks.world_size; ++peer) {
      const StripRows rows = exchange_.owned_by(peer);
      if (peer == rank || !strip.has_any_of(rows)) continue;
      strip.owner = peer;
      f(strip, rows);
    }
  }
  /// One at a time: the vectors of all blocks would not fit the registers beside the sums.
  template <int kBlock, class At>
  __device__ __forceinline__ void send_block(const Strip& strip, At at) const {
    if (kBlock >= strip.count) return;
    const int first_row = strip.number * PartialGrid::kRows + first_row_of(thread());
    const uint4 first = vector_of(kBlock, 0, at);
    const uint4 second = vector_of(kBlock, 1, at);
    for_owning_peers(strip, [&](const Strip& of_peer, const StripRows& rows) {
      std::byte* const to = blocks_at(exchange_, counts_.epoch, of_peer, exchange_.ranks.rank) +
                            kBlock * PartialGrid::kBytes + thread() * kVectorBytes;
      if (rows.has(first_row)) *reinterpret_cast<uint4*>(to) = first;
      if (rows.has(first_row + 8)) *reinterpret_cast<uint4*>(to + kVectorStride) = second;
    });
  }
  template <class At>
  __device__ __forceinline__ void send_shared(const Strip& strip, At at) {
    // No compiler unrolls a loop of loops, and a number that it does not know would put the sums into memory.
    [&]<int... kBlock>(std::integer_sequence<int, kBlock...>) {
      (send_block<kBlock>(strip, at), ...);
    }
    (std::make_integer_sequence<int, kBlocks>());
    sync_warp_group(group_);
    for_owning_peers(strip, [&](const Strip& of_peer, const StripRows&) {
      publish_blocks(exchange_, counts_.epoch, of_peer, thread());
    });
  }

  // What a thread has of a block put aside.
  static constexpr int kAsideVectors = 4;
  [[nodiscard]] __device__ float4* aside(int place, int vector) const {
    const auto cta = static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x);
    const std::int64_t strip = (std::int64_t{cta} * exchange_.aside_tiles + place) * 2 + group_;
    return exchange_.aside + (strip * kBlocks * kAsideVectors + vector) * kStripThreads + thread();
  }

  /// Until all own strips so far have come from all peers.
  __device__ void await_peers() const {
    const SharedAddress arrived = shared_address(&counts_.arrived[group_]);
    const auto has_come = [&] { return static_cast<std::int32_t>(load_relaxed(arrived) - own_) >= 0; };
    if (!has_come()) {
      // Not in registers: the sums have them.
      if (notes()) counts_.waits_since[group_] = symm::detail::global_time_ns();
      while (!has_come()) __nanosleep(20);
      if (notes()) {
        tandem::cuda::note_wait(exchange_.log, counts_.waits_since[group_],
                                static_cast<int>(load_relaxed(shared_address(&counts_.sender[group_]))));
      }
    }
    static_cast<void>(load_acquire(arrived));
  }

  [[nodiscard]] __device__ bool notes() const {
    return exchange_.log && thread() == 0;
  }

  /// This thread's part of a block that the first other rank has sent.
  [[nodiscard]] __device__ const std::byte* first_sender(const Strip& strip, int block) const {
    return blocks_at(exchange_, counts_.epoch, strip, exchange_.ranks.rank == 0 ? 1 : 0) +
           thread() * kVectorBytes + block * PartialGrid::kBytes;
  }
  [[nodiscard]] __device__ std::int64_t of_sender() const {
    return exchange_.grid.of_sender() * PartialGrid::kBytes;
  }

  /// To the own sums of blocks, in the order of the ranks.
  template <class Sum>
  __device__ __forceinline__ void add_ranks(const Strip& strip, int block, Sum sums) const {
    constexpr int kAtOnce = Sum::kBlocks;
    const std::byte* sender = first_sender(strip, block);
    const int rank = exchange_.ranks.rank;
    float before[kAtOnce * 16];
#pragma unroll
    for (float& one : before) one = -0.0F;
    const auto before_at = [&](int j) -> float& { return before[j]; };
    for (int i = 0; i < rank; ++i, sender += of_sender()) add_vectors<kAtOnce>(sender, before_at);
#pragma unroll
    for (int i = 0; i < kAtOnce * 16; ++i) sums(i) = before[i] + sums(i);
    for (int i = rank; i < exchange_.ranks.world_size - 1; ++i, sender += of_sender())
      add_vectors<kAtOnce>(sender, sums);
  }

  /// As store() rounds what goes to others.
  template <int kOfBlocks, class At>
  __device__ __forceinline__ static void round(At at) {
#pragma unroll
    for (int group = 0; group < kOfBlocks * 4; ++group) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        float& first = at(group, row, 0);
        float& second = at(group, row, 1);
        const float2 rounded = values_of<kIsHalf>(rounded_pair<kIsHalf>(first, second));
        first = rounded.x;
        second = rounded.y;
      }
    }
  }

  /// Until the strip is pushed that lies where the next one will.
  __device__ void await_room() const {
    if (staged_ < kStagedTiles) return;
    const SharedAddress pushed = shared_address(&counts_.pushed[group_]);
    const auto has_room = [&](std::uint32_t number) {
      return static_cast<std::int32_t>(number + kStagedTiles - 1 - staged_) >= 0;
    };
    while (!has_room(load_relaxed(pushed))) __nanosleep(40);
    static_cast<void>(load_acquire(pushed));
  }

  // Blocks whose vectors a thread has at one time, beside its sums, and beside sums that come before them.
  static constexpr int kManyBlocks = 2;
  static constexpr int kFewBlocks = 1;
  static constexpr int kSettledBlocks = kBlocks % 2 == 0 ? 2 : 1;
  static_assert(kBlocks % kSettledBlocks == 0, "blocks behind a tile are another tile's");

  /// Sums of neighbouring blocks.
  template <int kAtOnce, class At>
  struct Sums {
    static constexpr int kBlocks = kAtOnce;
    At at;
    int first;
    __device__ float& operator()(int i) const { return at(first * 4 + i / 4, i / 2 % 2, i % 2); }
  };
  /// add(block, sums of the blocks from there on) for all blocks of a strip, kAtOnce at a time where there
  /// are as many.
  template <int kAtOnce, class At, class Add>
  __device__ __forceinline__ static void add_in_batches(const Strip& strip, At at, Add add) {
#pragma unroll
    for (int first = 0; first < kBlocks; first += kAtOnce) {
      if (first + kAtOnce <= kBlocks && first + kAtOnce <= strip.count) {
        add(first, Sums<kAtOnce, At>{at, first});
        continue;
      }
#pragma unroll
      for (int block = first; block < first + kAtOnce; ++block) {
        if (block < kBlocks && block < strip.count) add(block, Sums<1, At>{at, block});
      }
    }
  }

  /// A thread's part of kAtOnce blocks of one sender.
  template <int kAtOnce, class Sum>
  __device__ __forceinline__ static void add_vectors(const std::byte* from, Sum sum) {
    uint4 vectors[2 * kAtOnce];
#pragma unroll
    for (int i = 0; i < 2 * kAtOnce; ++i) vectors[i] = load_vector(from + i * kVectorStride);
#pragma unroll
    for (int i = 0; i < 2 * kAtOnce; ++i) {
      const std::uint32_t words[4] = {vectors[i].x, vectors[i].y, vectors[i].z, vectors[i].w};
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        const float2 values = values_of<kIsHalf>(words[word]);
        const int first = i / 2 * 16 + word * 4 + i % 2 * 2;
        sum(first) += values.x;
        sum(first + 1) += values.y;
      }
    }
  }

  template <int kOfBlocks, class At>
  __device__ __forceinline__ void finish(int first_column, At at) const {
    if (exchange_.divisor == 1.0F && exchange_.bias.data == nullptr) return;
#pragma unroll
    for (int group = 0; group < kOfBlocks * 4; ++group) {
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const int column = first_column + group * 8 + thread() % 4 * 2 + pair;
        const bool has_bias = exchange_.bias.data != nullptr && column < exchange_.n;
        const float bias = has_bias ? bias_at(exchange_.bias, column) : -0.0F;
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          float& sum = at(group, row, pair);
          sum = sum / exchange_.divisor + bias;
        }
      }
    }
  }

  const PartialExchange& exchange_;
  PartialCounts& counts_;
  const int group_;
  std::uint32_t staged_ = 0;
  std::uint32_t own_ = 0;  ///< strips so far
};

/// By a warp of a CTA: tells its warp groups when other ranks' blocks of their own strips are there.
template <int kColumns>
class PartialPoller {
 public:
  __device__ PartialPoller(const PartialExchange& exchange, PartialCounts& counts)
      : exchange_(exchange), counts_(counts) {}

  /// Of a tile, if this rank owns rows of it.
  __device__ void await(const OwnedTile& tile) {
#pragma unroll 1
    for (int group = 0; group < 2; ++group) {
      const Strip strip = strip_of<kColumns>(exchange_, tile, group);
      if (!is_own(exchange_, strip)) continue;
      await_blocks(strip, group);
      __syncwarp();
      // One more than the word has: nobody else writes it.
      if (lane() == 0) store_release(shared_address(&counts_.arrived[group]), counts_.arrived[group] + 1);
    }
  }
  __device__ void end() const {
    __syncwarp();
    if (lane() == 0) end_exchange(exchange_, counts_.epoch);
  }

 private:
  [[nodiscard]] __device__ static int lane() {
    return static_cast<int>(threadIdx.x % 32);
  }
  /// Words of four senders at one time. Once a wait has given up the others are skipped, and the kernel ends
  /// over what is there.
  __device__ void await_blocks(const Strip& strip, int group) {
    constexpr int kFirstLooks = 256;
    constexpr int kLanesOfSender = 8;
    static_assert(kColumns / PartialGrid::kColumns <= kLanesOfSender);
    const std::uint32_t epoch = counts_.epoch;
    const int senders = exchange_.ranks.world_size - 1;
    const int block = lane() % kLanesOfSender;
#pragma unroll 1
    for (int place = lane() / kLanesOfSender; place - lane() / kLanesOfSender < senders && !gave_up_;
         place += 32 / kLanesOfSender) {
      const int sender = place < strip.owner ? place : place + 1;
      const bool is_any = place < senders && block < strip.count;
      const std::uint32_t* const word =
          words_at(exchange_, epoch, strip, is_any ? sender : strip.owner) + (is_any ? block : 0);
      const auto has_come = [&] { return !is_any || symm::detail::load_relaxed(word) == epoch; };
      bool have_all_come = false;
#pragma unroll 1
      for (int look = 0; look < kFirstLooks && !have_all_come; ++look) {
        if (look > 0) __nanosleep(50);
        const bool is_there = has_come();
        if (exchange_.log && !is_there) tell_sender(group, sender);
        have_all_come = __all_sync(0xffffffffU, is_there);
      }
      if (!have_all_come) {
        // It takes long: look around too.
        bool ok = true;
        if (is_any) {
          std::int64_t begin_ns = 0;
          ok = symm::detail::wait_until(exchange_.ranks,
                                        {symm::KernelCall::kAwaitPartial, sender, strip.number}, epoch,
                                        begin_ns, [&](std::uint32_t& seen) {
                                          seen = symm::detail::load_relaxed(word);
                                          return seen == epoch;
                                        });
        }
        gave_up_ = !__all_sync(0xffffffffU, ok);
      }
      if (is_any) static_cast<void>(symm::detail::load_acquire(word));
    }
  }

  /// Of several that lack blocks, one.
  __device__ void tell_sender(int group, int sender) const {
    store_relaxed(shared_address(&counts_.sender[group]), static_cast<std::uint32_t>(sender));
  }

  const PartialExchange& exchange_;
  PartialCounts& counts_;
  bool gave_up_ = false;
};

/// By the warp of a CTA that pushes what its warp groups stage: strips in the order of the tiles.
template <int kColumns>
class PartialPusher {
 public:
  /// `stage`: shared memory for two blocks.
  __device__ PartialPusher(const PartialExchange& exchange, PartialCounts& counts, std::byte* stage)
      : exchange_(exchange), counts_(counts), stage_(shared_address(stage) + lane() * kVectorBytes) {}

  /// Of a tile that is not the CTA's last one, if it is a peer's.
  __device__ void push(const OwnedTile& tile) {
    if (tile.owner == exchange_.ranks.rank) return;
#pragma unroll 1
    for (int group = 0; group < 2; ++group) {
      const Strip strip = strip_of<kColumns>(exchange_, tile, group);
      if (strip.count == 0) continue;
      // Nobody else writes the word.
      const std::uint32_t number = counts_.pushed[group];
      await_staged(group, number);
      push_blocks(strip, staged_strip<kColumns>(exchange_, number, group));
      __syncwarp();
      publish_blocks(exchange_, counts_.epoch, strip, lane());
      __syncwarp();
      if (lane() == 0) store_release(shared_address(&counts_.pushed[group]), number + 1);
      __syncwarp();
    }
  }
  __device__ void end() {
    __syncwarp();
    if (lane() == 0) end_exchange(exchange_, counts_.epoch);
  }

 private:
  [[nodiscard]] __device__ static int lane() {
    return static_cast<int>(threadIdx.x % 32);
  }
  static constexpr int kWarpBytes = 32 * kVectorBytes;
  static constexpr int kLoads = PartialGrid::kBytes / kWarpBytes;
  static constexpr int kAtOnce = 2;

  __device__ void await_staged(int group, std::uint32_t number) const {
    const SharedAddress staged = shared_address(&counts_.staged[group]);
    while (static_cast<std::int32_t>(load_relaxed(staged) - number) <= 0) __nanosleep(100);
    static_cast<void>(load_acquire(staged));
    __syncwarp();
  }
  /// Each lane loads and stores its own vectors of a block: every 32nd.
  __device__ void begin_block(const std::byte* from, int block) const {
    const SharedAddress to = stage_ + block % 2 * PartialGrid::kBytes;
    from += block * PartialGrid::kBytes;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) begin_load(to + i * kWarpBytes, from + i * kWarpBytes);
    end_loads();
  }
  __device__ void push_blocks(const Strip& strip, const std::byte* from) {
    std::byte* to = blocks_at(exchange_, counts_.epoch, strip, exchange_.ranks.rank) + lane() * kVectorBytes;
    from += lane() * kVectorBytes;
    begin_block(from, 0);
#pragma unroll 1
    for (int block = 0; block < strip.count; ++block, to += PartialGrid::kBytes) {
      await_loads();
      if (block + 1 < strip.count) begin_block(from, block + 1);
      pace();
      const SharedAddress here = stage_ + block % 2 * PartialGrid::kBytes;
#pragma unroll
      for (int first = 0; first < kLoads; first += kAtOnce) {
        uint4 vectors[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) vectors[i] = load_vector(here + (first + i) * kWarpBytes);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
          *reinterpret_cast<uint4*>(to + (first + i) * kWarpBytes) = vectors[i];
      }
    }
  }
  __device__ void pace() {
    const auto now = [] { return static_cast<std::uint32_t>(symm::detail::global_time_ns()); };
    // A due time long ago is as if there were none.
    while (due_ns_ - now() < static_cast<std::uint32_t>(exchange_.block_ns)) __nanosleep(64);
    due_ns_ = now() + exchange_.block_ns;
  }

  const PartialExchange& exchange_;
  PartialCounts& counts_;
  const SharedAddress stage_;  ///< of this lane
  std::uint32_t due_ns_ = 0;
};

}  // namespace tandem::gemm::cuda
