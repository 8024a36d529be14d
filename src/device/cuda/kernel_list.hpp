#pragma once

// Included by .cu files.

#include <cuda_runtime_api.h>

#include <initializer_list>
#include <vector>

namespace tandem::cuda {

/// Kernels, by the addresses under which the runtime knows them. A leaf lists all of its own: they are loaded
/// when a device is opened, since a first launch that had to load one would wait for kernels that wait for a
/// signal, and reported by `tandem doctor`.
using KernelList = std::vector<const void*>;

template <class... Kernels>
void add_kernels(KernelList& list, Kernels*... kernels) {
  (list.push_back(reinterpret_cast<const void*>(kernels)), ...);
}

[[nodiscard]] inline KernelList joined(std::initializer_list<KernelList> lists) {
  KernelList all;
  for (const KernelList& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

/// Makes them present on the current device. The first refusal, or success.
[[nodiscard]] inline cudaError_t load_kernels(const KernelList& kernels) {
  for (const void* kernel : kernels) {
    cudaFuncAttributes attributes{};
    if (const cudaError_t code = cudaFuncGetAttributes(&attributes, kernel); code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

}  // namespace tandem::cuda
