#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <tandem/base/config.hpp>
#include <tandem/device/device.hpp>
#include <vector>

#include "device/cuda/kernel_list.hpp"

namespace tandem::cuda {

/// GPU `index`. Loads every kernel of this library at once: a first launch that had to load one would wait
/// for kernels that wait for a signal.
/// Errors: kUnsupported when there is no driver, no such GPU, or one older than Hopper.
[[nodiscard]] Result<std::unique_ptr<Device>> make_device(int index, const Config& config);

/// GPUs that make_device() would open; 0 where there is no driver.
[[nodiscard]] int count_devices();
/// Their names, by index; makes no context. Errors: those of make_device(0), when there are none.
[[nodiscard]] Result<std::vector<std::string>> device_names();

/// Of streams; the other leaves have lists of their own.
[[nodiscard]] KernelList kernels();

}  // namespace tandem::cuda
