#pragma once

#include <memory>

#include "device/cuda/internal_stream.hpp"
#include "device/recorder.hpp"

namespace tandem::cuda {

/// The service of a GPU that `internal` is of.
[[nodiscard]] std::shared_ptr<Recorder> make_recorder(std::shared_ptr<InternalStream> internal);

}  // namespace tandem::cuda
