#pragma once

#include <cstdint>
#include <string>
#include <tandem/base/config.hpp>
#include <tandem/base/error.hpp>
#include <tandem/base/support.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <vector>

namespace tandem {

// What the command-line tool and the tests need of the backends, and no user of the library.

/// Sets two variables of the CUDA runtime, unless the user has set them, for a process whose ranks share a
/// GPU. Call it before anything else of CUDA. A rank's kernel may wait for a signal that another rank's host
/// thread has yet to send, and must not hold that thread up. So each stream gets a hardware queue of its own,
/// and kernels are loaded at the start: a load at the first launch waits for all that runs.
void prepare_shared_gpu();

// Lines for people. They start the CUDA runtime, and are empty without CUDA or without GPUs.

/// Each GPU and pair of GPUs: "0: passes memory between processes", "0 and 1: peer access, ...".
[[nodiscard]] std::vector<std::string> describe_cuda_links();
/// Each kernel of tandem on GPU 0: "symm::cuda::barrier_kernel: 40 registers, 0 bytes of local memory, ...".
[[nodiscard]] std::vector<std::string> describe_cuda_kernels();

/// The clock of a device's stamps, which timelines are made of.
struct ClockReport {
  std::string clock;
  std::int64_t uncertainty_ns = 0;  ///< of a time, against the host's clock
};
/// Errors: kUnsupported where the device has no stamps; those of making them.
[[nodiscard]] Result<ClockReport> report_clock(Device& device);
/// Whether a profiler gets the ranges of this device's streams.
[[nodiscard]] bool has_profiler(const Device& device);

/// Whether this rank notices the end of every other rank's process, and if not, why.
[[nodiscard]] Support sees_deaths(const Group& group);

/// Each library that is loaded at run time: "cuBLASLt 13.1.0, /usr/.../libcublasLt.so.13", or why it cannot
/// be loaded. Loads them. Empty in a build without CUDA.
[[nodiscard]] std::vector<std::string> describe_cuda_libraries(const Config& config);

}  // namespace tandem
