#pragma once

#include <memory>

#include "device/cuda/shared_gpu.hpp"
#include "device/recorder.hpp"

namespace tandem::cuda {

/// The service of `gpu`.
[[nodiscard]] std::shared_ptr<Recorder> make_recorder(std::shared_ptr<const SharedGpu> gpu);

}  // namespace tandem::cuda
