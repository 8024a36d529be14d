#pragma once

// How a block of threads exchanges its piece with the same block of every other rank: mailboxes.hpp says why
// nobody is in another's way.
//
// Memory order. A block's pushes come before a __syncthreads(), behind which one thread a peer stores the
// epoch with release at system scope: cumulative, so who reads it reads the pushes (kernel_device.cuh). The
// wait polls relaxed, then loads with acquire what it has seen or a later epoch of the same sender, and a
// __syncthreads() comes before the boxes are read: by plain loads, never ld.global.nc. The epoch of a block
// is read and written by kernels of one stream order, and by nobody else.

#include <tandem/symm/kernel_device.cuh>

#include "coll/cuda/mailboxes.hpp"

namespace tandem::coll::cuda {

/// Of one block of threads in one kernel; made and used by all its threads alike.
class Exchange {
 public:
  __device__ explicit Exchange(const Mailboxes& boxes)
      : boxes_(boxes), piece_(static_cast<int>(blockIdx.x)), epoch_(*epoch() + 1) {}

  /// Where `sender`'s piece lies for `receiver`.
  [[nodiscard]] __device__ std::byte* box(int receiver, int sender) const {
    return boxes_.blocks[receiver] + boxes_.box_at(epoch_ % 2, piece_, sender);
  }

  /// Behind the pushes to all other ranks: theirs are in the own boxes then. False if a wait gave up: return
  /// from the kernel.
  [[nodiscard]] __device__ bool meet() const {
    const symm::KernelHandle& ranks = boxes_.ranks;
    const int world = ranks.world_size;
    const int step = static_cast<int>(threadIdx.x) + 1;
    bool ok = true;
    __syncthreads();
    if (step < world) {
      symm::detail::store_release(word((ranks.rank + step) % world, ranks.rank), epoch_);
      ok = await((ranks.rank + step) % world);
    }
    if (threadIdx.x == 0) *epoch() = epoch_;
    return __syncthreads_and(ok ? 1 : 0) != 0;
  }

 private:
  [[nodiscard]] __device__ std::uint32_t* epoch() const {
    return reinterpret_cast<std::uint32_t*>(boxes_.blocks[boxes_.ranks.rank] + boxes_.epoch_at(piece_));
  }
  [[nodiscard]] __device__ std::uint32_t* word(int receiver, int sender) const {
    return reinterpret_cast<std::uint32_t*>(boxes_.blocks[receiver] +
                                            boxes_.word_at(epoch_ % 2, piece_, sender));
  }
  [[nodiscard]] __device__ bool await(int sender) const {
    const std::uint32_t* const from = word(boxes_.ranks.rank, sender);
    std::int64_t begin_ns = 0;
    const bool has_come =
        symm::detail::wait_until(boxes_.ranks, {symm::KernelCall::kExchange, sender, piece_}, epoch_,
                                 begin_ns, [&](std::uint32_t& seen) {
                                   seen = symm::detail::load_relaxed(from);
                                   return static_cast<std::int32_t>(seen - epoch_) >= 0;
                                 });
    static_cast<void>(symm::detail::load_acquire(from));
    return has_come;
  }

  const Mailboxes& boxes_;
  const int piece_;
  const std::uint32_t epoch_;
};

}  // namespace tandem::coll::cuda
