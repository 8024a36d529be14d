#pragma once

#include <memory>

#include "device/stamps.hpp"

namespace tandem::cuda {

/// Stamps of a GPU's streams by events: they need no multiprocessor, so that a stream reaches them while a
/// product fills the GPU.
[[nodiscard]] std::shared_ptr<StampService> make_stamp_service();

}  // namespace tandem::cuda
