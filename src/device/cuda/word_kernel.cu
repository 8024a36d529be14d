#include "device/cuda/word_kernel.hpp"

#include <tandem/cuda/device_words.cuh>

namespace tandem::cuda {
namespace {

// What earlier kernels and copies of the stream wrote happens before this kernel, so that a release at system
// scope passes it on to whoever acquires the word.
__global__ void store_word(std::uint32_t* word, std::uint32_t value) {
  store_release(word, value);
}

__global__ void fill_words(std::uint32_t* words, std::uint32_t value, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (std::int64_t i = first; i < count; i += step) {
    words[i] = value;
  }
}

}  // namespace

KernelList word_kernels() {
  KernelList list;
  add_kernels(list, store_word, fill_words);
  return list;
}

cudaError_t launch_fill_words(std::uint32_t* words, std::uint32_t value, std::int64_t count,
                              cudaStream_t stream) {
  constexpr int kThreads = 512;
  constexpr std::int64_t kMostBlocks = 528;  // four on each of 132 multiprocessors
  const std::int64_t blocks = (count + kThreads - 1) / kThreads;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, fill_words, words, value, count);
}

cudaError_t launch_store_word(std::uint32_t* word, std::uint32_t value, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(1);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, store_word, word, value);
}

}  // namespace tandem::cuda
