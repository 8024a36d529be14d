#pragma once

#include <memory>
#include <tandem/bootstrap/store.hpp>
#include <tandem/bootstrap/transport.hpp>
#include <tandem/device/device.hpp>

namespace tandem::transport::cuda {

/// tandem::open_nccl() of builds with CUDA.
[[nodiscard]] Result<std::shared_ptr<Transport>> open_nccl(int rank, int size, Store& store, Device& device);

}  // namespace tandem::transport::cuda
