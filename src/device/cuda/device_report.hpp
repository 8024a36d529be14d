#pragma once

#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <vector>

#include "device/cuda/kernel_list.hpp"

namespace tandem::cuda {

/// A line for each pair of usable GPUs: "0 and 1: peer access, atomics over the link".
[[nodiscard]] std::vector<std::string> describe_links();

/// What people call a kernel; empty: by its function.
using NameOf = std::string_view (*)(const void* kernel);
/// A line for each kernel, as it is loaded on `gpu`: "symm::cuda::barrier_kernel: 40 registers, 0 bytes of
/// local memory, 0 shared". Local memory is spilled registers and arrays of a thread.
[[nodiscard]] Result<std::vector<std::string>> describe_kernels(const KernelList& kernels, int gpu,
                                                                NameOf name_of = nullptr);

}  // namespace tandem::cuda
