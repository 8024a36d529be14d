#pragma once

// The three functions of kernel.hpp for kernels on a GPU. Include this header in the .cu file of your own
// kernel. Pass Handle::kernel_handle() to the kernel by value, and call Handle::watch() with the stream
// before the launch. Return from the kernel when a function returns false: Stream::synchronize() returns the
// reason.
//
// Memory order, for a sender S and a receiver R of one slot:
//
//   put   atom.cas 0 -> 1, release, system scope. Everything that happens before it on S's GPU happens before
//         whatever R does after the wait that reads this 1: what its own thread did; what other threads did
//         before a __syncthreads() that the thread has passed (release is cumulative); and what kernels and
//         copies that stand earlier in the stream did, since a kernel begins after they have ended.
//   wait  atom.cas 1 -> 0, acquire, system scope: reads the 1 of exactly one put, since only R turns 1 into 0
//         and only S turns 0 into 1. What comes after a __syncthreads(), and the kernels behind in the
//         stream, come after it as well.
//
// So neither needs a fence of its own. As on the CPU, the 0 of a wait carries no data back to S: the put that
// takes the slot again need not acquire. The poll before a successful compare-and-swap is relaxed; it decides
// nothing. Data of other ranks must not be read through `const __restrict__` pointers or __ldg(): those loads
// may be served from a cache that no acquire reaches.

#if !defined(__CUDACC__) && !defined(TANDEM_SIMULATED_GPU)
#error "kernel_device.cuh is for device code: compile it with nvcc"
#endif

#include <cstdint>
#include <tandem/cuda/device_words.cuh>
#include <tandem/symm/kernel.hpp>
#include <tandem/symm/kernel_control.hpp>

namespace tandem::symm {

namespace detail {

using tandem::cuda::global_time_ns;
using tandem::cuda::load_acquire;
using tandem::cuda::load_relaxed;
using tandem::cuda::store_relaxed;
using tandem::cuda::store_release;
using tandem::cuda::swap_acquire;
using tandem::cuda::swap_relaxed;
using tandem::cuda::swap_release;

/// What the host's error text says of a wait.
struct WaitSite {
  KernelCall call;
  int peer;
  int channel;
};

__device__ inline KernelControl& control_of(const KernelHandle& handle) {
  return *static_cast<KernelControl*>(handle.control);
}

__device__ inline std::uint32_t* slot_at(std::uint32_t* pad, int world_size, int channel, int source) {
  return pad + static_cast<std::int64_t>(world_size) * channel + source;
}

/// Whether a wait of this rank has given up. Its record is written before anything that the caller does then.
__device__ inline bool has_given_up(const KernelControl& control) {
  if (load_relaxed(control.has_given_up) != KernelControl::kTold) return false;
  return load_acquire(control.has_given_up) == KernelControl::kTold;
}

/// Writes the fault record, unless there is one. The record exists when this returns: late peers see signals
/// of this rank's later ops, and must see the record too.
__device__ inline void give_up(KernelControl& control, const WaitSite& site, GiveUpReason reason,
                               std::uint32_t expected, std::uint32_t seen, std::int64_t waited_ns) {
  // Only kernels of this GPU come here, so its own atomics are enough; those on host memory would not be.
  if (atomicCAS(control.has_given_up, KernelControl::kWaits, KernelControl::kTelling) !=
      KernelControl::kWaits) {
    while (!has_given_up(control)) {
    }
    return;
  }
  KernelFault& fault = *control.fault;
  fault.reason = reason;
  fault.call = site.call;
  fault.peer = site.peer;
  fault.channel = site.channel;
  fault.expected = expected;
  fault.seen = seen;
  fault.waited_ns = waited_ns;
  store_release(&fault.state, KernelFault::kSet);
  store_release(control.has_given_up, KernelControl::kTold);
}

__device__ inline GiveUpReason look_around(const KernelHandle& handle, int peer, std::int64_t waited_ns) {
  const KernelControl& control = control_of(handle);
  if (load_relaxed(control.group_error) != 0U) return GiveUpReason::kPoisoned;
  const auto* const left = reinterpret_cast<const std::uint32_t*>(
      reinterpret_cast<const unsigned char*>(control.left) + peer * control.left_stride_bytes);
  if (peer != handle.rank && load_acquire(left) != 0U) return GiveUpReason::kPeerLeft;
  return waited_ns >= handle.timeout_ns ? GiveUpReason::kTimeout : GiveUpReason::kNone;
}

/// Calls try_once(seen) until it is true. It returns false when it gives up: the deadline has passed, the
/// group is poisoned, `site.peer` has left, or another wait of this rank has given up. The deadline counts
/// from `begin_ns`, which the first of several waits of one call sets.
///
/// A word in the GPU's own memory says whether another wait has given up. The words of group and peer lie in
/// host memory and are read once a millisecond. Copy engines, whose commands lie there too, come late while
/// kernels read host memory all the time. A long wait tells the host for whom it waits, until it succeeds:
/// the rank that gives up first is not the culprit.
template <class Try>
__device__ inline bool wait_until(const KernelHandle& handle, const WaitSite& site, std::uint32_t expected,
                                  std::int64_t& begin_ns, Try try_once) {
  constexpr int kSpinsPerClock = 32;
  constexpr std::int64_t kNsPerLook = 1'000'000;
  std::uint32_t seen = 0;
  if (try_once(seen)) return true;
  std::int64_t now_ns = global_time_ns();
  if (begin_ns == 0) begin_ns = now_ns;
  KernelControl& control = control_of(handle);
  const std::int64_t end_ns = begin_ns + handle.timeout_ns;
  // The first look comes before the last: it tells for whom this waits.
  std::int64_t next_look_ns = now_ns + min(kNsPerLook, handle.timeout_ns / 4);
  bool is_told = false;
  for (;;) {
#pragma unroll 1
    for (int spin = 0; spin < kSpinsPerClock; ++spin) {
      if (!try_once(seen)) continue;
      if (is_told) store_relaxed(control.waits_for, 0U);
      return true;
    }
    if (has_given_up(control)) return false;
    now_ns = global_time_ns();
    if (now_ns < min(next_look_ns, end_ns)) continue;
    const std::int64_t waited_ns = now_ns - begin_ns;
    const GiveUpReason reason = look_around(handle, site.peer, waited_ns);
    if (reason == GiveUpReason::kNone) {
      next_look_ns = now_ns + kNsPerLook;
      if (!is_told) store_relaxed(control.waits_for, static_cast<std::uint32_t>(site.peer + 1));
      is_told = true;
      continue;
    }
    // What the peer did before it left counts.
    if (reason == GiveUpReason::kPeerLeft && try_once(seen)) return true;
    give_up(control, site, reason, expected, seen, waited_ns);
    return false;
  }
}

/// Changes `word`, in a peer's memory, from 0 to 1. The first attempt is the compare-and-swap itself: a load
/// before it would be another round trip.
__device__ inline bool put(const KernelHandle& handle, std::uint32_t* word, const WaitSite& site,
                           PutOrder order, std::int64_t& begin_ns) {
  const auto swap = [=] {
    return order == PutOrder::kRelease ? swap_release(word, 0, 1) : swap_relaxed(word, 0, 1);
  };
  if (swap() == 0U) return true;
  return wait_until(handle, site, 0, begin_ns, [=](std::uint32_t& seen) {
    seen = load_relaxed(word);
    if (seen == 0U) seen = swap();
    return seen == 0U;
  });
}

/// Changes a word of the own pad from 1 to 0.
__device__ inline bool take(const KernelHandle& handle, std::uint32_t* word, const WaitSite& site,
                            WaitOrder order, std::int64_t& begin_ns) {
  const auto swap = [=] {
    return order == WaitOrder::kAcquire ? swap_acquire(word, 1, 0) : swap_relaxed(word, 1, 0);
  };
  return wait_until(handle, site, 1, begin_ns, [=](std::uint32_t& seen) {
    seen = load_relaxed(word);
    if (seen == 1U) seen = swap();
    return seen == 1U;
  });
}

__device__ inline bool check(const KernelHandle& handle, const WaitSite& site) {
  if (site.peer >= 0 && site.peer < handle.world_size && site.channel >= 0 &&
      site.channel < handle.num_channels && handle.timeout_ns > 0) {
    return true;
  }
  give_up(control_of(handle), site, GiveUpReason::kBadArgument,
          static_cast<std::uint32_t>(handle.num_channels), 0, handle.timeout_ns);
  return false;
}

/// Puts to all other ranks, then takes from all others. Thread `thread` of `num_threads` does its part. Each
/// rank begins with the next rank, so that W ranks do not all write to rank 0 first.
__device__ inline bool meet(const KernelHandle& handle, KernelCall call, int channel, int thread,
                            int num_threads, PutOrder put_order, WaitOrder wait_order) {
  const int world_size = handle.world_size;
  std::uint32_t* const own_pad = handle.signal_pads[handle.rank];
  std::int64_t begin_ns = 0;
  bool ok = true;
  for (int step = 1 + thread; ok && step < world_size; step += num_threads) {
    const int peer = (handle.rank + step) % world_size;
    std::uint32_t* const word = slot_at(handle.signal_pads[peer], world_size, channel, handle.rank);
    ok = put(handle, word, {call, peer, channel}, put_order, begin_ns);
  }
  for (int step = 1 + thread; ok && step < world_size; step += num_threads) {
    const int peer = (handle.rank + step) % world_size;
    std::uint32_t* const word = slot_at(own_pad, world_size, channel, peer);
    ok = take(handle, word, {call, peer, channel}, wait_order, begin_ns);
  }
  return ok;
}

}  // namespace detail

// Other functions than those of the same names for hosts, also where both are in one program.
inline namespace device_code {

/// Signals `dst`; one thread calls it.
__device__ inline bool put_signal(const KernelHandle& handle, int dst, int channel,
                                  PutOrder order = PutOrder::kRelease) {
  const detail::WaitSite site{KernelCall::kPutSignal, dst, channel};
  if (!detail::check(handle, site)) return false;
  std::int64_t begin_ns = 0;
  auto* const word = detail::slot_at(handle.signal_pads[dst], handle.world_size, channel, handle.rank);
  return detail::put(handle, word, site, order, begin_ns);
}

/// Waits for `src`; one thread calls it. Other threads of its block may read what was signalled after a
/// __syncthreads().
__device__ inline bool wait_signal(const KernelHandle& handle, int src, int channel,
                                   WaitOrder order = WaitOrder::kAcquire) {
  const detail::WaitSite site{KernelCall::kWaitSignal, src, channel};
  if (!detail::check(handle, site)) return false;
  std::int64_t begin_ns = 0;
  auto* const word = detail::slot_at(handle.signal_pads[handle.rank], handle.world_size, channel, src);
  return detail::take(handle, word, site, order, begin_ns);
}

/// A barrier of this block with those of all ranks. All threads of the block call it and get the same answer.
/// Thread t signals and waits for the rank t + 1 places further. The call includes a __syncthreads() before
/// the puts (with kRelease) and one after the waits.
__device__ inline bool sync_blocks(const KernelHandle& handle, int block, PutOrder put, WaitOrder wait) {
  if (!detail::check(handle, {KernelCall::kSyncBlocks, handle.rank, block})) return false;
  const auto thread = static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
  const auto num_threads = static_cast<int>(blockDim.x * blockDim.y * blockDim.z);
  if (put == PutOrder::kRelease) __syncthreads();
  const bool ok = detail::meet(handle, KernelCall::kSyncBlocks, block, thread, num_threads, put, wait);
  return __syncthreads_and(ok ? 1 : 0) != 0;
}

}  // namespace device_code

}  // namespace tandem::symm
