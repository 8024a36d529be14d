#pragma once

#include <memory>
#include <string>
#include <tandem/base/config.hpp>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/device.hpp>
#include <vector>

namespace tandem {

/// Opens a device and attaches every part of its backend: streams, symmetric memory, products, collectives.
/// The one place that knows which backends exist.
/// Errors: kUnsupported when this build or this machine has no such device.
[[nodiscard]] Result<std::unique_ptr<Device>> open_device(DeviceId id, const Config& config);

/// For a process whose ranks share a GPU, before anything else of CUDA is called in it: sets two variables of
/// the CUDA runtime that the user has not set. A rank's kernel may wait for a signal that another rank's host
/// thread has yet to send, and must not hold it up: streams get a hardware queue of their own each, and
/// kernels are loaded at the start instead of at their first launch, which waits for all that runs.
void prepare_shared_gpu();

/// GPUs that open_device() can open: 0 in a build without them, and on a machine without a driver. Starts the
/// CUDA runtime in this process, so a program that makes other processes asks in a child.
[[nodiscard]] int count_cuda_devices();
/// Their names, by index. Errors: kUnsupported saying why there are none.
[[nodiscard]] Result<std::vector<std::string>> list_cuda_devices();

// For people, as lines; empty in a build without CUDA, and on a machine without GPUs. Start the CUDA runtime.

/// Each GPU and pair of GPUs: "0: passes memory between processes", "0 and 1: peer access, ...".
[[nodiscard]] std::vector<std::string> describe_cuda_links();
/// Each kernel of tandem on GPU 0: "symm::cuda::barrier_kernel: 40 registers, 0 bytes of local memory, ...".
[[nodiscard]] std::vector<std::string> describe_cuda_kernels();

/// A line for each library that is loaded at run time: "cuBLASLt 13.1.0, /usr/.../libcublasLt.so.13", or why
/// not. Loads them. Empty in a build without CUDA.
[[nodiscard]] std::vector<std::string> describe_cuda_libraries(const Config& config);

}  // namespace tandem
