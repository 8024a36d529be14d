// The signals of a host program as kernels of one block: the device functions that users' kernels call, with
// the slot's address worked out on the host. The order of memory is argued in kernel_device.cuh. What stands
// before such a kernel in its stream has ended when it begins, and what stands behind begins after it, so the
// release of a put and the acquire of a wait cover the whole stream; no fence is needed. A reset is the
// exception: the next kernel may begin while it runs, and sees what it acquired only behind
// await_kernel_before().

#include "symm/cuda/signal_kernels.hpp"

#include <tandem/symm/chunk_signals.cuh>
#include <tandem/symm/kernel_device.cuh>

#include "device/cuda/next_kernel.cuh"

namespace tandem::symm::cuda {
namespace {

__global__ void put_signal_kernel(const KernelHandle handle, std::uint32_t* const word, const int dst,
                                  const int channel) {
  std::int64_t begin_ns = 0;
  detail::put(handle, word, {KernelCall::kPutSignal, dst, channel}, PutOrder::kRelease, begin_ns);
}

__global__ void wait_signal_kernel(const KernelHandle handle, std::uint32_t* const word, const int src,
                                   const int channel) {
  std::int64_t begin_ns = 0;
  detail::take(handle, word, {KernelCall::kWaitSignal, src, channel}, WaitOrder::kAcquire, begin_ns);
}

// One thread a peer. Each of its puts releases all that stands before in the stream, each of its waits holds
// up all that stands behind, so the threads need not meet.
__global__ void barrier_kernel(const KernelHandle handle, const int channel) {
  detail::meet(handle, KernelCall::kBarrier, channel, static_cast<int>(threadIdx.x),
               static_cast<int>(blockDim.x), PutOrder::kRelease, WaitOrder::kAcquire);
}

// A thread a chunk. Each acquires what it waits for, and all that stands behind begins after they have ended.
__global__ void await_chunks_kernel(const ChunkSignals signals, const int first, const int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) static_cast<void>(await_chunk(signals, first + i));
}

// One block. Its threads meet before the puts, which release the zeros of all of them.
__global__ void reset_words_kernel(const KernelHandle handle, std::uint32_t* const words,
                                   const std::int64_t count, const int channel) {
  tandem::cuda::let_next_kernel_begin();
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) words[i] = 0;
  __syncthreads();
  detail::meet(handle, KernelCall::kBarrier, channel, static_cast<int>(threadIdx.x),
               static_cast<int>(blockDim.x), PutOrder::kRelease, WaitOrder::kAcquire);
}

__global__ void flip_bit_kernel(std::uint8_t* const byte, const std::uint8_t bit) {
  *byte = *byte ^ bit;
}

cudaLaunchConfig_t one_block(int num_threads, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(static_cast<unsigned>(num_threads));
  config.stream = stream;
  return config;
}

}  // namespace

tandem::cuda::KernelList signal_kernels() {
  tandem::cuda::KernelList list;
  tandem::cuda::add_kernels(list, put_signal_kernel, wait_signal_kernel, barrier_kernel, await_chunks_kernel,
                            reset_words_kernel, flip_bit_kernel);
  return list;
}

cudaError_t launch_put_signal(const KernelHandle& handle, std::uint32_t* word, int dst, int channel,
                              cudaStream_t stream) {
  const cudaLaunchConfig_t config = one_block(1, stream);
  return cudaLaunchKernelEx(&config, put_signal_kernel, handle, word, dst, channel);
}

cudaError_t launch_wait_signal(const KernelHandle& handle, std::uint32_t* word, int src, int channel,
                               cudaStream_t stream) {
  const cudaLaunchConfig_t config = one_block(1, stream);
  return cudaLaunchKernelEx(&config, wait_signal_kernel, handle, word, src, channel);
}

cudaError_t launch_barrier(const KernelHandle& handle, int channel, cudaStream_t stream) {
  constexpr int kMostThreads = 1024;  // a thread may have several peers
  const int num_peers = handle.world_size - 1;
  const cudaLaunchConfig_t config = one_block(num_peers < kMostThreads ? num_peers : kMostThreads, stream);
  return cudaLaunchKernelEx(&config, barrier_kernel, handle, channel);
}

cudaError_t launch_await_chunks(const KernelHandle& handle, const ChunkRange& chunks, cudaStream_t stream) {
  constexpr int kThreads = 128;
  ChunkSignals signals;
  signals.words = chunks.words;
  signals.expected = chunks.expected;
  signals.chunks_per_rank = chunks.chunks_per_rank;
  signals.waits = handle;
  const int count = chunks.count;
  cudaLaunchConfig_t config = one_block(count < kThreads ? count : kThreads, stream);
  config.gridDim.x = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  return cudaLaunchKernelEx(&config, await_chunks_kernel, signals, chunks.first, count);
}

cudaError_t launch_reset_words(const KernelHandle& handle, std::uint32_t* words, std::int64_t count,
                               int channel, cudaStream_t stream) {
  constexpr int kThreads = 512;  // for the words; the first ones also meet the peers
  const cudaLaunchConfig_t config = one_block(kThreads, stream);
  return cudaLaunchKernelEx(&config, reset_words_kernel, handle, words, count, channel);
}

cudaError_t launch_flip_bit(std::uint8_t* byte, std::uint8_t bit, cudaStream_t stream) {
  const cudaLaunchConfig_t config = one_block(1, stream);
  return cudaLaunchKernelEx(&config, flip_bit_kernel, byte, bit);
}

}  // namespace tandem::symm::cuda
